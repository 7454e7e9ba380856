"""DZSGD: DSGD with dense two-sided estimates instead of gradients (a baseline of SeedFlood, arXiv 2602.18181)."""

from study.methods.dsgd import Gossip


class Dzsgd(Gossip):
    """All parameters. Every client draws directions of its own."""

    source = "DZSGD, arXiv 2602.18181, section 5"
    order = "zeroth"
    grid = tuple({"rate": rate} for rate in (3e-5, 1e-4, 3e-4, 1e-3))

    def _take_step(self, client: int) -> None:
        numbers_F = self.numbers_NF[client]
        numbers_F.sub_(self.two_sided(numbers_F, [client], key=client), alpha=self.rate)


class DzsgdLora(Dzsgd):
    """LoRA's factors alone."""

    source = "DZSGD on LoRA's factors, arXiv 2602.18181, section 5, and 2106.09685"
    grid = tuple({"rate": rate} for rate in (3e-4, 1e-3, 3e-3, 1e-2))
    has_adapters = True
