-- Asks a window (sliding, or fixed with kept = 0) for units.
--
-- KEYS[1] the counter
-- ARGV    n, limit, width us, kept, horizon ms. n = 0 only looks.
-- Reply   "1" or "0" (allowed), id of the current bucket, us since it began,
--         buckets as " id:units id:units ..."; or "e", reason

-- limbs splits a number up to 2^53 into three digits to the base 2^18.
local function limbs(x)
  local a = x % 262144
  local y = (x - a) / 262144
  local b = y % 262144
  return a, b, (y - b) / 262144
end

-- product returns a * b, up to 2^106, as six digits to the base 2^18. No sum in
-- here exceeds 2^40, so that all of it is exact.
local function product(a, b)
  local a0, a1, a2 = limbs(a)
  local b0, b1, b2 = limbs(b)
  local d = { a0 * b0, a0 * b1 + a1 * b0, a0 * b2 + a1 * b1 + a2 * b0, a1 * b2 + a2 * b1, a2 * b2, 0 }
  for i = 1, 5 do
    local low = d[i] % 262144
    d[i + 1] = d[i + 1] + (d[i] - low) / 262144
    d[i] = low
  end
  return d
end

-- fits tells whether a * b <= c * d, exactly.
local function fits(a, b, c, d)
  local x, y = product(a, b), product(c, d)
  for i = 6, 1, -1 do
    if x[i] ~= y[i] then
      return x[i] < y[i]
    end
  end
  return true
end

local n, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local rule = { width = tonumber(ARGV[3]), kept = tonumber(ARGV[4]), horizon = tonumber(ARGV[5]) }
local now = clock()
local st, why = guard(read_window, KEYS[1], rule, now)
if not st then
  return { 'e', why }
end

local elapsed = now % rule.width
local room, oldest = limit - n, 0
for age = 0, rule.kept do
  local units = st.n[age] or 0
  if age > 0 and age == rule.kept then
    oldest = units
  else
    -- Stop at the first shortage: further down the difference is not exact.
    room = room - units
  end
  if room < 0 then
    break
  end
end
-- The oldest bucket counts by the part of it that the window still covers.
local allowed = room >= 0 and fits(oldest, rule.width - elapsed, room, rule.width)
if allowed and n > 0 then
  st.n[0] = (st.n[0] or 0) + n
  write_window(KEYS[1], st, rule, now)
end
local list = buckets(st.n, rule, now)
return { allowed and '1' or '0', int((now - elapsed) / rule.width), int(elapsed), list }
