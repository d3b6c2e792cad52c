-- Reads the last batch that a node's ledger knows, and keeps the ledger alive.
--
-- KEYS[1] the ledger
-- ARGV    its TTL in ms
-- Reply   the seq, "0" if there is none or it cannot be read; Redis' time in us

return { last_batch(KEYS[1], ARGV[1]), int(clock()) }
