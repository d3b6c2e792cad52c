-- Returns the number of the last batch in a node's ledger, and renews the ledger's TTL.
--
-- KEYS[1] the ledger
-- ARGV    its TTL in ms
-- Reply   the seq, "0" if there is none or it cannot be read; Redis' time in us

return { last_batch(KEYS[1], ARGV[1]), int(clock()) }
