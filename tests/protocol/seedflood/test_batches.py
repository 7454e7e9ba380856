from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.bundles import cut_bundles, make_bundle, payload_bytes

sizes = st.lists(st.integers(1, 3000), min_size=1, max_size=40)


@given(sizes, st.integers(1, 10), st.integers(1, 5000))
def test_parts_of_payloads_keep_order_count_and_bytes_or_are_one_bundle(sizes, count_max, bytes_max):
    bundles = [make_bundle(1, step, (bytes(size),)) for step, size in enumerate(sizes)]
    parts = list(cut_bundles(bundles, count_max, bytes_max))
    assert [bundle for part in parts for bundle in part] == bundles
    for part, after in zip(parts, [*parts[1:], ()], strict=True):
        assert 1 <= len(part) <= count_max
        assert payload_bytes(part) <= bytes_max or len(part) == 1
        assert not after or len(part) == count_max or payload_bytes([*part, after[0]]) > bytes_max


@given(st.integers(0, 40), st.integers(1, 10))
def test_pairs_are_cut_by_count_alone(count, count_max):
    bundles = [make_bundle(1, step, ((step, 1),)) for step in range(count)]
    parts = list(cut_bundles(bundles, count_max, bytes_max=1))
    assert [len(part) for part in parts] == [len(bundles[k : k + count_max]) for k in range(0, count, count_max)]
    assert payload_bytes(bundles) == 0
