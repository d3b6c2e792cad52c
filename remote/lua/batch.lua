-- Applies the batch of one node to one shard, exactly once.
--
-- KEYS[1]   the node's ledger: "<seq> <total> <failed>"
-- KEYS[2..] one counter per operation
-- ARGV      seq, prev, accept (0 or 1), TTL of the ledger in ms; then per
--           operation its kind, the number of its fields, and the fields:
--   f  units, rate, cost us, cost rem, ahead us, ahead rem, horizon ms, and what
--      the units handed back had cost: us, rem, and in which generation
--      and to raise the key first: generation, level us, level rem
--   w  units, width us, kept, horizon ms, buckets, and those of the units
--      handed back, and in which generation
--      and to raise the key first: generation, buckets
-- Reply     verdict, Redis' time in us, total, number of states; then per state
--           "f", generation, level us, level rem
--           "g", the same, but it has leaked at another rate before
--           "w", generation, buckets
--           "v", the same, but the buckets had another width before
--           "e", reason: this key failed, nothing was booked on it
--           "b", reason: it was booked when the batch was applied, but cannot
--           be read now
--
-- Verdicts: a applied, d duplicate (this very batch had been applied, nothing
-- is now), s stale (an older batch: nothing is applied, no states), l lost (the
-- ledger does not know the batch before this one, Redis has lost data: nothing
-- is applied, no states).

local now = clock()

-- ledger returns the last seq, the total and the failed operations. A ledger
-- that cannot be read counts as lost; the next batch overwrites it.
local function ledger()
  local v = guard(fetch, KEYS[1])
  local seq, total, failed = string.match(v or '', '^(%d+) (%d+) ([-%d,]+)$')
  if not seq then
    return 0, 0, ''
  end
  local last, sum = guard(num, seq), guard(num, total)
  if not last or not sum or last > TOP / 2 then -- no node counts that far: forged
    return 0, 0, ''
  end
  return last, sum, failed
end

local function raise_funnel(st, gen, us, rem)
  if st.gen > gen then
    return
  end
  if st.gen < gen then
    st.gen, st.us, st.rem = gen, us, rem
    return
  end
  st.us, st.rem = later(st.us, st.rem, us, rem)
end

local function raise_window(st, gen, n, kept)
  if st.gen > gen then
    return
  end
  if st.gen < gen then
    st.gen, st.n = gen, {}
  end
  for age = 0, kept do
    if n[age] then
      st.n[age] = math.max(st.n[age] or 0, n[age])
    end
  end
end

local kinds = {}

kinds.f = function(key, at, fields, apply, out)
  local function arg(i)
    return tonumber(ARGV[at + i])
  end
  local units, rate, horizon = arg(0), ARGV[at + 1], arg(6)
  local D = tonumber((rated(rate)))
  local st = read_funnel(key, rate, now)
  local raise = fields > 10
  if apply and raise then
    local us, rem = add(now, 0, arg(11), arg(12), D)
    if us == now and rem == 0 then
      us = 0 -- empty, for nobody knows how long
    end
    raise_funnel(st, arg(10), us, rem)
  end
  -- What is handed back was booked by earlier batches.
  local back = (arg(7) > 0 or arg(8) > 0) and arg(9) >= st.reset
  if apply and back then
    st.us, st.rem = subtract(st.us, st.rem, arg(7), arg(8), D)
    renew(st, now)
  end
  if apply and units > 0 then
    local us, rem = add(now, 0, arg(4), arg(5), D)
    st.us, st.rem = add(st.us, st.rem, arg(2), arg(3), D)
    st.us, st.rem = later(st.us, st.rem, us, rem)
  end
  local us, rem = level(st.us, st.rem, now)
  local empty = us == 0 and rem == 0 and st.gen == 0 and st.absent
  if apply and (units > 0 or raise or back) and not empty then
    write_funnel(key, st, rate, now, horizon)
  else
    remember(key, st.us + 1, now, st.gen, horizon)
  end
  out[#out + 1] = st.converted and 'g' or 'f'
  out[#out + 1] = int(st.gen)
  out[#out + 1] = int(us)
  out[#out + 1] = int(rem)
end

kinds.w = function(key, at, fields, apply, out)
  local units = tonumber(ARGV[at])
  local rule = {
    width = tonumber(ARGV[at + 1]),
    kept = tonumber(ARGV[at + 2]),
    horizon = tonumber(ARGV[at + 3]),
  }
  local st = read_window(key, rule, now)
  local raise = fields > 7
  if apply and raise then
    local known = {}
    place(known, ARGV[at + 8], rule.width, rule, now)
    raise_window(st, tonumber(ARGV[at + 7]), known, rule.kept)
  end
  local back = ARGV[at + 5] ~= '' and tonumber(ARGV[at + 6]) >= st.reset
  if apply and back then
    local less = {}
    place(less, ARGV[at + 5], rule.width, rule, now)
    for age = 0, rule.kept do
      if less[age] and st.n[age] then
        -- 0 is left out of the list of buckets
        st.n[age] = st.n[age] > less[age] and st.n[age] - less[age] or nil
      end
    end
    renew(st, now)
  end
  if apply and units > 0 then
    place(st.n, ARGV[at + 4], rule.width, rule, now)
  end
  local list = buckets(st.n, rule, now)
  local empty = list == '' and st.gen == 0 and st.absent
  if apply and (units > 0 or raise or back) and not empty then
    write_window(key, st, rule, now)
  else
    remember(key, now, now, st.gen, rule.horizon)
  end
  out[#out + 1] = st.converted and 'v' or 'w'
  out[#out + 1] = int(st.gen)
  out[#out + 1] = list
end

-- operate runs the operation whose record starts at ARGV[at]. It fails alone,
-- whatever goes wrong: the ledger says already that the batch was applied.
local function operate(key, at, apply, out)
  local run = kinds[ARGV[at]]
  if not run then
    bad('unknown kind of operation')
  end
  run(key, at + 2, tonumber(ARGV[at + 1]), apply, out)
end

-- reason puts what pcall caught into words.
local function reason(why)
  if type(why) == 'table' then
    why = why.err
  end
  return (string.gsub(tostring(why), '^!', ''))
end

local seq, prev, accept = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local last, total, failed = ledger()
local verdict = 'l'
if last == seq then
  verdict = 'd'
elseif last > seq then
  verdict = 's'
elseif last == prev or accept then
  verdict = 'a'
end
if verdict == 'l' or verdict == 's' then
  return { verdict, int(now), int(total), '0' }
end

local function keep(sum, list)
  redis.call('SET', KEYS[1], int(seq) .. ' ' .. int(sum) .. ' ' .. list, 'PX', ARGV[4])
end

-- The ledger is written before anything else: if Redis is out of memory or
-- read-only this fails, and with it the script, while nothing is applied. Once
-- one write has passed, Redis lets the others of the script pass too.
local first, apply = 5, verdict == 'a'
if apply then
  local sum, at = total, first
  for _ = 2, #KEYS do
    sum = math.min(sum + tonumber(ARGV[at + 2]), MAX)
    at = at + 2 + tonumber(ARGV[at + 1])
  end
  keep(sum, '-')
end

local out, at, broken = { verdict, int(now), '', int(#KEYS - 1) }, first, {}
for i = 2, #KEYS do
  local ok, why, kind = true, 'failed when the batch was applied', 'e'
  local size = #out
  if not apply and string.find(',' .. failed .. ',', ',' .. int(i - 2) .. ',', 1, true) then
    ok = false
  else
    ok, why = pcall(operate, KEYS[i], at, apply, out)
    if not apply then
      kind = 'b' -- booked the first time; it only cannot be read any more
    end
  end
  if not ok then
    for j = #out, size + 1, -1 do
      out[j] = nil
    end
    out[#out + 1] = kind
    out[#out + 1] = reason(why)
    broken[#broken + 1] = int(i - 2)
  elseif apply then
    total = math.min(total + tonumber(ARGV[at + 2]), MAX)
  end
  at = at + 2 + tonumber(ARGV[at + 1])
end
if apply and #broken > 0 then
  keep(total, table.concat(broken, ','))
end
out[3] = int(total)
return out
