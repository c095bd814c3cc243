"""The arbiter: region layout, the network, and adapters on disk."""
