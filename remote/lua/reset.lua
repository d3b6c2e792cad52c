-- Forgets what has been used of a counter. What stays is its generation, one
-- that no earlier view has, for as long as such a view could matter.
--
-- KEYS[1] the counter
-- ARGV    kind (f funnel, w window, l log), D or width us, kept, horizon ms
-- Reply   "1"; or "e", reason

local key, kind = KEYS[1], ARGV[1]
local now = clock()

local function forget()
  if kind == 'l' then
    -- A log knows no generation: nobody else holds a view of it.
    try('ZCARD', key)
    redis.call('DEL', key)
    return true
  end
  local size, horizon = tonumber(ARGV[2]), tonumber(ARGV[4])
  local rule = { width = size, kept = tonumber(ARGV[3]), horizon = horizon }
  local st = kind == 'f' and read_funnel(key, size) or read_window(key, rule, now)
  local gen = math.min(math.max(now, st.gen + 1), TOP)
  if kind == 'f' then
    write_funnel(key, { gen = gen, us = 0, rem = 0 }, size, now, horizon)
  else
    write_window(key, { gen = gen, n = {} }, rule, now)
  end
  return true
end

local ok, why = guard(forget)
if not ok then
  return { 'e', why }
end
return { '1' }
