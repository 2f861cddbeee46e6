//! A Redis server that is away, comes back, forgets, or refuses.
