"""The protocol, pure: it decides, and performs nothing.

No clock, socket, thread, torch or asyncio. Time and signature checks are arguments; what is to be done comes out
as `Outputs`, in the order that is the contract: persist, then send, then apply.
"""
