-- Asks a sliding log for units. A refusal writes nothing.
--
-- KEYS[1] the sorted set
-- ARGV    n, limit, window us, book, and "1" to take what is left, up to n. n =
--         0, or book = 0, only looks.
-- Reply   "1" or "0" (allowed), units counted, us until enough of them leave
--         (0 when allowed), us until the last one leaves, and the units taken if
--         what is left was asked for; or "e", reason

local n, most = tonumber(ARGV[1]), ARGV[5] == '1'
local q = { key = KEYS[1], limit = tonumber(ARGV[2]), width = tonumber(ARGV[3]) }
local now = clock()
local _, why = guard(log.look, q, now)
if why then
  return { 'e', why }
end

if most then
  n = math.max(math.min(n, q.limit - q.count), q.limit > 0 and 1 or 0)
end
local allowed = log.fits(q, n)
if allowed and n > 0 and ARGV[4] == '1' then
  log.book(q, n, now)
  log.tidy(q, now)
end
local answer = { allowed and '1' or '0' }
log.tell(q, answer, now, not allowed and n or nil)
if most then
  answer[5] = allowed and int(n) or '0'
end
return answer
