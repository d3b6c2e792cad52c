-- Asks a funnel for units.
--
-- KEYS[1] the counter
-- ARGV    rate, cost us, cost rem, capacity us, capacity rem, horizon ms, all
--         spans in us + rem/D. A cost of 0 only looks. A capacity beyond the
--         funnel's own books ahead. If more follow, they are
--         the costs (us, rem) of n/2, n/4 … 1 units, n a power of 2 and the first
--         cost that of n: what is left is taken, up to 2n - 1 units, or up to the
--         number that is the last argument.
-- Reply   "1" or "0" (allowed), level us, level rem, and the units taken if what
--         is left was asked for; or "e", reason

local function arg(i)
  return tonumber(ARGV[i])
end

local now = clock()
local q = { key = KEYS[1], rate = ARGV[1], fus = arg(4), frem = arg(5), horizon = arg(6) }
local _, why = guard(funnel.look, q, now)
if why then
  return { 'e', why }
end

-- Every cost is taken that fits: one, or those of smaller and smaller steps.
local most, step = 1, 1
if #ARGV > 6 then
  most, step = arg(#ARGV), 2 ^ ((#ARGV - 7) / 2)
end
local at, taken, fits = 2, 0, false
while step >= 1 do
  local us, rem = arg(at), arg(at + 1)
  if taken + step <= most and funnel.fits(q, us, rem) then
    fits, taken = true, taken + step
    funnel.pour(q, us, rem)
  end
  step, at = step / 2, at == 2 and 7 or at + 2
end
if taken > 0 and (arg(2) > 0 or arg(3) > 0) then
  funnel.save(q, now)
end
local answer = { fits and '1' or '0' }
funnel.tell(q, answer)
if #ARGV > 6 then
  answer[4] = int(taken)
end
return answer
