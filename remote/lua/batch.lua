-- Applies the batch of one node to one shard, exactly once.
--
-- KEYS[1]   the node's ledger: "<seq> <total> <failed>"
-- KEYS[2..] one counter per operation
-- ARGV      seq, prev, accept (0 or 1), TTL of the ledger in ms; then per
--           operation its kind, the number of its fields, and the fields:
--   f  units, rate, cost us, cost rem, ahead us, ahead rem, horizon ms,
--      and, if any are handed back or the key is to be raised, what those had
--      cost: us, rem, and in which generation
--      and to raise the key first: generation, level us, level rem
--   w  units, width us, kept, horizon ms, buckets, and those of the units
--      handed back, and in which generation
--      and to raise the key first: generation, buckets
-- Reply     verdict, Redis' time in us, total, number of states; then per state
--           "f", generation, level us, level rem (these two as integers)
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

local KEYS, ARGV = KEYS, ARGV -- global names are slower to find
local now = clock()

-- ledger returns the last seq, the total and the failed operations. A ledger
-- that cannot be read counts as lost; the next batch overwrites it.
local function ledger()
  local v = guard(fetch, KEYS[1])
  local seq, total, failed = match(v or '', '^(%d+) (%d+) ([-%d,]+)$')
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

-- pour books units on a funnel in the usual state, which was read ahead, and
-- reports whether it is in that. It is what most batches consist of, so that it is
-- written out: what it adds up are ahead and cost, see add and later.
local function pour(key, at, out, n)
  local v, p = ahead[key], plain(ARGV[at + 1])
  local us, rem
  if v then
    us, rem = read_plain(v, p)
  end
  if not us then
    return false
  end
  local D = p.D
  ahead[key] = nil
  if ARGV[at] ~= '0' then
    us, rem = us + ARGV[at + 2], rem + ARGV[at + 3]
    if rem >= D then
      us, rem = us + 1, rem - D
    end
    local least, rest = now + ARGV[at + 4], ARGV[at + 5] + 0
    if us < least or (us == least and rem < rest) then
      us, rem = least, rest
    end
    if us > TOP then
      us, rem = TOP, 0
    end
    store(key, format(p.form, us, rem), rem > 0 and us + 1 or us, now, 0)
  end
  out[n + 1], out[n + 2] = 'f', '0'
  if us < now then
    out[n + 3], out[n + 4] = 0, 0
  else
    out[n + 3], out[n + 4] = us - now, rem
  end
  return true
end

-- A kind appends its state to out, after the first n items, and returns how many
-- there are then.

kinds.f = function(key, at, fields, apply, out, n)
  if apply and fields == 7 and pour(key, at, out, n) then
    return n + 4
  end
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
  local back = fields > 7 and (arg(7) > 0 or arg(8) > 0) and arg(9) >= st.reset
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
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = st.converted and 'g' or 'f', int(st.gen), us, rem
  return n + 4
end

-- plain_window returns what windows of no generation begin with, and what is the
-- current bucket and the oldest one that counts.
local panes = {}
local function plain_window(width, kept)
  local p = panes[width]
  if not p or p.kept ~= kept then
    local us = width + 0
    p = { head = 'w 0 ' .. width, us = us, cur = (now - now % us) / us, kept = kept }
    p.size, p.oldest = #p.head, p.cur - kept
    panes[width] = p
  end
  return p
end

-- digits reports whether a text of digits is a number above 0, spelled as int()
-- does, of which a few can be added up.
local function digits(s)
  return byte(s) ~= 48 and #s < 16
end

-- newest looks at the buckets in the value of a window from pos on. It returns where
-- those that count begin, where the last of all does, and its id and units. Nothing is
-- wrong with a value for which it returns anything, unless the last is ahead of time:
-- ids ascend.
local function newest(v, pos, p)
  local start, last, id, units = pos, 0, 0, nil
  local stop = #v
  while pos <= stop do
    local _, tail, i, u = find(v, '^ (%d+):(%d+)', pos)
    if not tail or not digits(i) or not digits(u) or i + 0 <= id then
      return nil
    end
    last, id, units = pos, i + 0, u
    pos = tail + 1
    if id < p.oldest then
      start = pos
    end
  end
  return start, last, id, units
end

-- pour_window is pour of a window: units of one bucket, to be added to the newest one
-- or to come after it.
local function pour_window(key, at, out, n)
  local v, id, units = ahead[key], match(ARGV[at + 4], '^ (%d+):(%d+)$')
  if not v or #v > 4096 or not id or not digits(id) or not digits(units) then
    return false
  end
  if ARGV[at] == '0' or ARGV[at + 5] ~= '' then
    return false
  end
  local p = plain_window(ARGV[at + 1], ARGV[at + 2])
  local new = id + 0
  if sub(v, 1, p.size) ~= p.head or new > p.cur or new < p.oldest then
    return false
  end
  local start, last, top, had = newest(v, p.size + 1, p)
  if not start or top > new then
    return false
  end
  ahead[key] = nil
  local list
  if top == new then
    list = sub(v, start, last) .. id .. ':' .. int(had + units)
  else
    list = sub(v, start) .. ARGV[at + 4]
  end
  store(key, p.head .. list, (new + ARGV[at + 2] + 1) * p.us, now, 0)
  out[n + 1], out[n + 2], out[n + 3] = 'w', '0', list
  return true
end

kinds.w = function(key, at, fields, apply, out, n)
  if apply and fields == 7 and pour_window(key, at, out, n) then
    return n + 3
  end
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
  local list
  if apply and (units > 0 or raise or back) and (next(st.n) or st.gen > 0 or not st.absent) then
    list = write_window(key, st, rule, now)
  else
    list = buckets(st.n, rule, now)
    remember(key, now, now, st.gen, rule.horizon)
  end
  out[n + 1], out[n + 2], out[n + 3] = st.converted and 'v' or 'w', int(st.gen), list
  return n + 3
end

local function unknown()
  bad('unknown kind of operation')
end

-- reason puts what pcall caught into words.
local function reason(why)
  if type(why) == 'table' then
    why = why.err
  end
  return (string.gsub(tostring(why), '^!', ''))
end

local seq, prev, accept = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
look_ahead(KEYS)
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
    sum = sum + ARGV[at + 2]
    at = at + 2 + ARGV[at + 1]
  end
  keep(math.min(sum, MAX), '-')
end

local out, n = { verdict, int(now), '', int(#KEYS - 1) }, 4
local at, broken = first, {}
for i = 2, #KEYS do
  local fields = ARGV[at + 1] + 0
  local ok, why, kind = true, 'failed when the batch was applied', 'e'
  if not apply and string.find(',' .. failed .. ',', ',' .. int(i - 2) .. ',', 1, true) then
    ok = false
  else
    -- It fails alone, whatever goes wrong: the ledger says already that the batch
    -- was applied.
    ok, why = pcall(kinds[ARGV[at]] or unknown, KEYS[i], at + 2, fields, apply, out, n)
    if not apply then
      kind = 'b' -- booked the first time; it only cannot be read any more
    end
  end
  if not ok then
    out[n + 1], out[n + 2] = kind, reason(why)
    n = n + 2
    broken[#broken + 1] = int(i - 2)
  else
    n = why
    if apply then
      total = total + ARGV[at + 2]
    end
  end
  at = at + 2 + fields
end
if apply and #broken > 0 then
  keep(math.min(total, MAX), table.concat(broken, ','))
end
out[3] = int(math.min(total, MAX))
return out
