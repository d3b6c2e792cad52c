-- How a window decides, sliding, or fixed with kept = 0. Scripts have this file after
-- lib_window.lua.
--
-- Amounts are units. The oldest bucket expires gradually: Rule.Gone of package arith says how,
-- and why.

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

-- at_most reports whether a * b <= c * d, exactly.
local function at_most(a, b, c, d)
  local x, y = product(a, b), product(c, d)
  for i = 6, 1, -1 do
    if x[i] ~= y[i] then
      return x[i] < y[i]
    end
  end
  return true
end

local window = {}
kinds.w = window

function window.read(key, at)
  local arg = ARGV
  local width = tonumber(arg[at + 1])
  return {
    key = key, kind = window, limit = arg[at] + 0, width = width, calendar = not width and arg[at + 1], kept = arg[at + 2] + 0,
    horizon = arg[at + 3] + 0, ask = arg[at + 4] + 0, rest = 0, own = 0, own_rest = 0, st = false, elapsed = 0, told = false, dry = false,
  }, at + 5
end

function window.look(q, now)
  q.st = read_window(q.key, q, now)
  q.elapsed = q.st.at % q.width
end

-- room returns the limit less n and less the buckets that count in full, and the
-- units of the oldest bucket, which counts in part.
function window.room(q, n)
  local room, oldest = q.limit - n, 0
  for age = 0, q.kept do
    local units = q.st.n[age] or 0
    if age > 0 and age == q.kept then
      oldest = units
    else
      -- Stop below 0: further down the difference is not exact.
      room = room - units
    end
    if room < 0 then
      break
    end
  end
  return room, oldest
end

-- share returns limit / kept, rounded up.
function window.share(q)
  local rest = q.limit % q.kept
  return (q.limit - rest) / q.kept + (rest > 0 and 1 or 0)
end

-- holds reports whether the part of the oldest bucket that still counts fits into the room.
function window.holds(q, room, oldest)
  if room < 0 or oldest <= room then
    return room >= 0
  end
  local last = q.st.l[q.kept]
  local left = last - q.elapsed
  if left <= 0 then
    return true
  end
  return oldest - room <= window.share(q) and at_most(left, q.limit, room, q.kept * q.width)
    and not at_most(room, last, left, oldest - 1)
end

function window.fits(q)
  return window.holds(q, window.room(q, q.ask))
end

function window.left(q)
  local room, oldest = window.room(q, 0)
  local most = math.min(q.ask, room)
  while q.own < most do -- more than most do not fit
    local n = q.own + math.ceil((most - q.own) / 2)
    if window.holds(q, room - n, oldest) then
      q.own = n
    else
      most = n - 1
    end
  end
  return q.own
end

function window.book(q, now)
  q.st.n[0] = (q.st.n[0] or 0) + q.own
  q.st.l[0] = math.max(q.st.l[0] or 0, q.elapsed)
  q.st.born = now
  write_window(q.key, q.st, q)
end

function window.tell(q)
  return int((q.st.at - q.elapsed) / q.width), int(q.elapsed), (buckets(q.st, q))
end
