"""The rooms of ARCHITECTURE.md, as a test: what each layer may know."""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import seedflood

ROOT = Path(seedflood.__file__).parent
CHECKOUT = Path(__file__).parent.parent
LABORATORY = ("simulation", "study")
"""What a checkout has beside the package, and no host runs."""

REACH_MAX = 3
"""Attributes in a row, with the method that is called: `self._exchange.divergence.take`. Code that reaches further
depends on how the parts of its parts are built; it should ask its own part instead."""

DEEPER_ROOMS = {"host/": 4, "operations/": 4}
"""Rooms that may still reach further. These numbers only ever shrink."""

MODULES = {
    path.relative_to(base).as_posix(): path.read_text()
    for base, folder in ((ROOT, ROOT), *((CHECKOUT, CHECKOUT / room) for room in LABORATORY))
    for path in sorted(folder.rglob("*.py"))
    if not path.name.startswith("flood_pb2")
}
TREES = {name: ast.parse(source) for name, source in MODULES.items()}


def imports_of(tree, package=""):
    """Absolute names of everything that is imported anywhere in the module, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def package_of(name):
    parts = Path(name).parts[:-1]
    return ".".join(parts if parts and parts[0] in LABORATORY else ("seedflood", *parts))


IMPORTS = {name: set(imports_of(tree, package_of(name))) for name, tree in TREES.items()}


def is_within(imported, package):
    return imported == package or imported.startswith(package + ".")


def importers_of(package):
    return {name for name, imported in IMPORTS.items() if any(is_within(one, package) for one in imported)}


def outside(names, *folders):
    return {name for name in names if not name.startswith(folders)}


def modules_with(predicate):
    return {name for name, tree in TREES.items() if any(predicate(node) for node in ast.walk(tree))}


def test_protocol_imports_only_the_standard_library_errors_and_a_pure_function():
    allowed = ("seedflood.errors", "seedflood.protocol", "xxhash")
    strangers = {
        (name, imported)
        for name, all_imported in IMPORTS.items()
        if name.startswith("protocol/")
        for imported in all_imported
        if imported.split(".")[0] not in sys.stdlib_module_names
        and not any(is_within(imported, package) for package in allowed)
    }
    assert strangers == set()


ALGORITHMS = ("seedflood", "gasloc")


def test_the_swarm_knows_no_algorithm():
    shared = {"protocol/frontier.py", "protocol/origin.py", "protocol/packing.py"}
    within = {name for name in MODULES if name.startswith("protocol/swarm/")} | shared
    for algorithm in ALGORITHMS:
        assert {name for name in within if name in importers_of(f"seedflood.protocol.{algorithm}")} == set()
    assert {name for name in shared if name in importers_of("seedflood.protocol.swarm")} == set()


@pytest.mark.parametrize("one", ALGORITHMS)
@pytest.mark.parametrize("other", ALGORITHMS)
def test_no_algorithm_knows_another(one, other):
    assert any(name.startswith(f"protocol/{one}/") for name in MODULES)
    if one != other:
        importers = importers_of(f"seedflood.protocol.{other}")
        assert {name for name in importers if name.startswith(f"protocol/{one}/")} == set()


@pytest.mark.parametrize(
    "impure", ["asyncio", "datetime", "os", "random", "secrets", "socket", "threading", "time", "concurrent", "pathlib"]
)
def test_protocol_knows_no_clock_chance_thread_or_file(impure):
    assert {name for name in importers_of(impure) if name.startswith("protocol/")} == set()


@pytest.mark.parametrize(
    ("package", "folder"),
    [
        ("torch", ("training/", "library/", "study/methods/")),
        ("transformers", ("training/", "library/")),
        ("peft", "study/methods/"),
        ("matplotlib", "study/"),
        ("sqlite3", "storage/"),
        ("grpc", "transport/"),
        ("grpc_health", "transport/"),
        ("aiohttp", "operations/"),
        ("prometheus_client", "operations/"),
        ("seedflood.wire", ("wire/", "transport/", "storage/")),
    ],
)
def test_a_heavy_dependency_lives_in_one_package(package, folder):
    assert outside(importers_of(package), *([folder] if isinstance(folder, str) else folder)) == set()


ROOMS = ["training", "storage", "transport", "operations"]


@pytest.mark.parametrize("layer", ROOMS)
@pytest.mark.parametrize("other", ROOMS)
def test_training_storage_transport_and_operations_never_import_each_other(layer, other):
    if layer != other:
        assert {name for name in importers_of(f"seedflood.{other}") if name.startswith(f"{layer}/")} == set()


def test_the_spelling_of_values_knows_the_protocol_alone():
    known = {one for name, found in IMPORTS.items() if name.startswith("wire/") for one in found}
    rooms = ("seedflood.protocol", "seedflood.errors", "seedflood.wire")
    strangers = {one for one in known if is_within(one, "seedflood") and not any(is_within(one, r) for r in rooms)}
    assert strangers == set()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_any_algorithm_trains_with_knows_none_of_them(algorithm):
    importers = importers_of(f"seedflood.training.{algorithm}")
    assert {name for name in importers if name.startswith("training/")} <= {
        name for name in importers if name.startswith(f"training/{algorithm}/")
    }


def test_what_keeps_for_any_algorithm_knows_none_of_them():
    known = importers_of("seedflood.storage.seedflood") | importers_of("seedflood.protocol.seedflood")
    assert outside({name for name in known if name.startswith("storage/")}, "storage/seedflood/") == set()


def test_objectives_know_a_model_and_neither_rows_nor_settings():
    strangers = {
        (name, imported)
        for name, all_imported in IMPORTS.items()
        if name.startswith("training/objectives/")
        for imported in all_imported
        if is_within(imported, "seedflood")
        and not is_within(imported, "seedflood.training.objectives")
        and not is_within(imported, "seedflood.training.causal")
        and not is_within(imported, "seedflood.training.devices")
        and not is_within(imported, "seedflood.training.randomness")
    }
    assert strangers == set()


def test_scores_know_neither_model_nor_settings():
    rooms = ("seedflood.training.rewards", "seedflood.errors")
    known = {one for name, found in IMPORTS.items() if name.startswith("training/rewards/") for one in found}
    assert {one for one in known if is_within(one, "seedflood") and not any(is_within(one, r) for r in rooms)} <= {
        "seedflood"
    }
    assert not any(is_within(one, "torch") for one in known)


def test_what_runs_on_a_host_knows_no_laboratory():
    importers = {name for room in LABORATORY for name in importers_of(room)}
    assert outside(importers, *(f"{room}/" for room in LABORATORY)) == set()
    assert {name for name in importers_of("study") if name.startswith("simulation/")} == set()


def test_the_study_runs_no_daemon_and_its_methods_know_no_harness():
    seen = {(name, one) for name, found in IMPORTS.items() if name.startswith("study/") for one in found}
    live = ("simulation", *(f"seedflood.{room}" for room in ("host", "storage", "operations", "founding", "cli")))
    commands = {("study/__main__.py", one) for one in IMPORTS["study/__main__.py"]}
    assert {pair for pair in seen - commands if any(is_within(pair[1], room) for room in live)} == set()
    of_methods = {one for name, one in seen if name.startswith("study/methods/") and is_within(one, "study")}
    assert {one for one in of_methods if not is_within(one, "study.methods")} <= {"study"}


def test_what_simulates_any_algorithm_knows_none():
    for package in ("seedflood.protocol", "seedflood.host", "simulation"):
        importers = {name for name in importers_of(f"{package}.seedflood") if name.startswith("simulation/")}
        assert outside(importers, "simulation/seedflood/", "simulation/__main__.py") == set()


PURE_OF_TRANSPORT = {"seedflood.transport.codec", "seedflood.transport.answer"}
"""Bytes to messages and back, without a socket: the simulation's frames pass them, too."""


def test_the_driver_and_the_simulation_need_neither_torch_nor_grpc_nor_sqlite():
    heavy = (*(f"seedflood.{room}" for room in ROOMS if room != "transport"), "seedflood.host.daemon")
    for package in heavy:
        assert {name for name in importers_of(package) if name.startswith(("host/driver.py", "simulation/"))} == set()


OF_SEEDFLOOD = ("seedflood.seams", "seedflood.driver", "seedflood.history")
SHARED_OF_HOST = ("seams", "driver", "backlog", *OF_SEEDFLOOD)
"""What the simulation runs, too."""


@pytest.mark.parametrize("name", SHARED_OF_HOST)
def test_the_shared_part_of_the_shell_knows_the_protocol_alone(name):
    shared = tuple(f"seedflood.host.{one}" for one in SHARED_OF_HOST)
    allowed = ("seedflood.protocol", "seedflood.errors", "seedflood.host.seams", *shared)
    strangers = {one for one in IMPORTS[f"host/{name.replace('.', '/')}.py"] if is_within(one, "seedflood")} - {
        "seedflood.host"
    }
    assert {one for one in strangers if not any(is_within(one, package) for package in allowed)} == set()


@pytest.mark.parametrize(
    "name", ["seams", "driver", "backlog", "compute", "engine", "daemon", "process", "status_source", "report"]
)
def test_what_drives_any_algorithm_knows_none(name):
    assert f"host/{name}.py" not in importers_of("seedflood.protocol.seedflood") | importers_of(
        "seedflood.host.seedflood"
    )


def test_of_the_transport_the_simulation_takes_the_codec_alone():
    assert "host/driver.py" not in importers_of("seedflood.transport")
    taken = {one for name, all_imported in IMPORTS.items() if name.startswith("simulation/") for one in all_imported}
    taken = {one for one in taken if is_within(one, "seedflood.transport")} - {"seedflood.transport"}
    assert {".".join(one.split(".")[:3]) for one in taken} <= PURE_OF_TRANSPORT
    heavy = "{'grpc', 'torch', 'sqlite3'} & set(sys.modules)"
    script = f"import sys, simulation.seedflood.runs; print(sorted({heavy}))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert said.stdout.strip() == "[]"


VALUES = (
    "seedflood.protocol.origin",
    "seedflood.protocol.view",
    "seedflood.protocol.frontier.Held",
    "seedflood.protocol.swarm.messages",
    "seedflood.protocol.swarm.outputs",
    "seedflood.protocol.seedflood.bundles",
    "seedflood.protocol.seedflood.messages",
    "seedflood.protocol.seedflood.outputs",
)
"""What there is of the protocol that decides nothing: statements, facts, and what a node looks like."""


def test_operations_see_values_only():
    seen = {one for name, all_imported in IMPORTS.items() if name.startswith("operations/") for one in all_imported}
    live = {one for one in seen if is_within(one, "seedflood.protocol") or is_within(one, "seedflood.host")}
    live -= {value.rpartition(".")[0] for value in VALUES}
    assert {one for one in live if not any(is_within(one, value) for value in VALUES)} == set()


def test_what_operators_see_of_any_algorithm_knows_none_of_them():
    within = {name for name in MODULES if name.startswith("operations/") and "/seedflood/" not in name}
    for package in ("seedflood.operations.seedflood", "seedflood.protocol.seedflood", "seedflood.config.seedflood"):
        assert within & importers_of(package) == set()
    assert {
        name for name in within if "SeedfloodSettings" in MODULES[name] or ".run.seedflood" in MODULES[name]
    } == set()


def test_what_a_node_looks_like_is_made_of_nothing_that_lives():
    assert {one for one in IMPORTS["protocol/view.py"] if is_within(one, "seedflood")} == {
        "seedflood.protocol.origin",
        "seedflood.protocol.origin.OriginId",
    }


def test_async_appears_where_there_is_a_loop_only():
    asynchronous = modules_with(lambda node: isinstance(node, ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor))
    loops = ("transport/", "operations/server.py", "operations/console.py")
    engines = ("host/engine.py", "host/seedflood/relay.py", *(f"host/{one}/engine.py" for one in ALGORITHMS))
    invitations = ("founding/invitation.py", "founding/enrolling.py")
    shells = (
        "host/daemon.py",
        "host/process.py",
        "library/hosting.py",
        "cluster/local.py",
        "cluster/display.py",
        "cluster/processes.py",
        *invitations,
        *engines,
    )
    assert outside(asynchronous, *loops, *shells) == set()


def is_put_in_place(node):
    is_os = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    return is_os and node.attr in {"replace", "rename", "link"}


def test_files_come_into_being_whole_in_one_way_alone():
    assert modules_with(is_put_in_place) == {
        "durable.py",
        "storage/opening.py",
    }  # which sets aside files that are there


def test_nothing_is_pickled():
    assert importers_of("pickle") | importers_of("cloudpickle") | importers_of("dill") | importers_of("shelve") == set()
    assert importers_of("torch.load") | importers_of("torch.save") == set()
    assert modules_with(is_torch_load) == set()


def is_torch_load(node):
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return (node.value.id, node.attr) in {("torch", "load"), ("torch", "save"), ("numpy", "load"), ("np", "load")}


def reaches_of(tree):
    """All rows of attributes, each as the names in it; those of modules (`torch.nn.functional.embedding`) left out."""
    modules = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names = []
            while isinstance(node, ast.Attribute):
                names.append(node.attr)
                node = node.value
            if isinstance(node, ast.Name) and node.id not in modules:
                yield (node.id, *reversed(names))


def test_no_code_reaches_far_into_other_objects():
    far = {
        (name, ".".join(reach))
        for name, tree in TREES.items()
        for reach in reaches_of(tree)
        if len(reach) - 1 > next((most for room, most in DEEPER_ROOMS.items() if name.startswith(room)), REACH_MAX)
    }
    assert far == set()


def roles_of(modules):
    """What the classes of one name in these modules are for. The parts of two algorithms that stand in one place have
    one role, and so have a seam and what stands behind it."""
    whole = [name for name in modules if not name.endswith("/seams.py")]
    return {"/".join(one for one in name.split("/") if one not in (*ALGORITHMS, "swarm")) for name in whole}


def test_a_class_name_has_one_meaning():
    modules = defaultdict(set)
    for name, tree in TREES.items():
        if not name.startswith(LABORATORY):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    modules[node.name].add(name)
    assert {name for name, where in modules.items() if len(roles_of(where)) > 1} == set()


def test_every_test_module_has_a_name_of_its_own():
    """pytest imports them by their bare names: of two that share one it takes neither."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py")
    assert {name for name, count in names.items() if count > 1} == set()


def test_a_rare_mark_stands_in_the_file_of_its_tests():
    """With `-m long` no other file is collected: see conftest.py."""
    rare = re.compile(r"\bmark\.(docker|long|soak)\b")
    marked = {path.name for path in Path(__file__).parent.rglob("*.py") if rare.search(path.read_text())}
    assert {name for name in marked if not name.startswith("test_")} == set()


def test_these_checks_can_fail():
    tree = ast.parse("def f():\n    import torch.nn\n    from ..storage import journal\n    from . import codec\n")
    assert set(imports_of(tree, "seedflood.transport")) >= {
        "torch.nn",
        "seedflood.storage",
        "seedflood.storage.journal",
        "seedflood.transport.codec",
    }
    assert is_torch_load(ast.parse("torch.load(path)", mode="eval").body.func)
    assert not is_within("torchvision", "torch")
    reaching = ast.parse("import torch\nself._a.b.c.d(torch.nn.functional.embedding)\nx.y.z()\n")
    assert set(reaches_of(reaching)) == {("self", "_a", "b", "c", "d"), ("x", "y", "z")}
