-- Asks a window (sliding, or fixed with kept = 0) for units.
--
-- KEYS[1] the counter
-- ARGV    n, limit, width us, kept, horizon ms, and "1" to take what is left, up
--         to n. n = 0 only looks.
-- Reply   "1" or "0" (allowed), id of the current bucket, us since it began,
--         buckets as " id:units:last ...", and the units taken if what is
--         left was asked for; or "e", reason

local n, most = tonumber(ARGV[1]), ARGV[6] == '1'
local q = {
  key = KEYS[1],
  limit = tonumber(ARGV[2]),
  width = tonumber(ARGV[3]),
  kept = tonumber(ARGV[4]),
  horizon = tonumber(ARGV[5]),
}
local now = clock()
local _, why = guard(window.look, q, now)
if why then
  return { 'e', why }
end

local allowed
if most then
  n = window.left(q, n)
  allowed = n > 0
else
  allowed = window.fits(q, n)
end
if allowed and n > 0 then
  window.book(q, n, now)
end
local answer = { allowed and '1' or '0' }
window.tell(q, answer, now)
if most then
  answer[5] = int(n)
end
return answer
