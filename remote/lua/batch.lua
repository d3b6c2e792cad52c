-- Applies the batch of one node to one shard, exactly once.
--
-- KEYS[1]   the node's ledger: "<seq> <nonce> <total> <failed> <forgiven>".
--           The last two are "-", or what the batch seq has failed with (index,…) and
--           what it was forgiven (index:units,…)
-- KEYS[2..] one counter per operation
-- ARGV      seq, prev, accept (0 or 1), TTL of the ledger in ms, nonce (16
--           random hex digits, the same each time that a batch is sent); then per
--           operation its kind, the number of its fields, and the fields. Each
--           kind has base fields:
--   f  units, rate, cost us, cost rem, ahead us, ahead rem, horizon ms
--   w  units, width us, kept, horizon ms, buckets
--           After them come optional groups, each begun by its letter, in any
--           order:
--   r  raise the counter first
--      f: generation, born, level us (below 0 if it has been empty for so long), level rem
--      w: generation, born, buckets
--   c  units of an outage, of which those are forgiven that would raise the counter
--      above a ceiling
--      f: ceiling us, rem, how many they are, and the cost us, rem of one
--   b  hand back units that earlier batches booked
--      f: their cost us, rem, the generation in which they were handed back, and
--         the level us, rem above which others have booked behind them
--      w: their buckets, and that generation
-- Reply     verdict, Redis' time in us, total, number of states; then per state
--           "f", generation, born, level us, level rem (these three as integers; the
--           level is below 0 if the funnel has been empty for so long, because units
--           that are reported late go on from when it ran empty)
--           (and how many units it has forgiven, an integer, if there was a group c)
--           "g", the same, but it has leaked at another rate before
--           "w", generation, born (an integer), buckets
--           "v", the same, but the buckets had another width before
--           "e", reason: this key failed, nothing was booked on it
--           "b", reason: it was booked when the batch was applied, but cannot
--           be read now
--
-- Verdicts: a applied, d duplicate (this very batch had been applied, nothing
-- is now), o other (the batch of this number was another one, so that somebody
-- else goes by the node's name: nothing is applied, no states), s stale (an older
-- batch: nothing is applied, no states), k (a batch of this nonce was applied under an
-- earlier number, after prev: nothing is applied, no states, but the two lists of what
-- has failed and what was forgiven then, as the ledger has them), l lost (the ledger does not know the
-- batch before this one, Redis has lost data: nothing is applied, no states).

local KEYS, ARGV = KEYS, ARGV -- global names are slower to find
local now = clock()

-- ledger returns the last seq, its nonce, the total, the failed operations and what
-- was forgiven. A ledger that cannot be read counts as lost; the next batch overwrites it.
local function ledger()
  local v = guard(fetch, KEYS[1])
  local seq, nonce, total, failed, forgiven = match(v or '', '^(%d+) (%x+) (%d+) ([-%d,]+) ([-%d:,]+)$')
  if not seq then
    return 0, '', 0, '', ''
  end
  local last, sum = guard(num, seq), guard(num, total)
  if not last or not sum or last > TOP / 2 then -- no node counts that far: forged
    return 0, '', 0, '', ''
  end
  return last, nonce, sum, failed, forgiven
end

local function raise_funnel(st, gen, born, us, rem)
  local mine, theirs = merge(st, gen, born, now)
  if not mine then
    st.us, st.rem = 0, 0
  end
  if theirs then
    st.us, st.rem = later(st.us, st.rem, us, rem)
  end
end

local function raise_window(st, gen, born, known, kept)
  local mine, theirs = merge(st, gen, born, now)
  if not mine then
    st.n, st.l = {}, {}
  end
  for age = 0, kept do
    if theirs and known.n[age] then
      st.n[age] = math.max(st.n[age] or 0, known.n[age])
      st.l[age] = math.max(st.l[age] or 0, known.l[age])
    end
  end
end

-- What each kind of operation has: the number of its base fields, and that of the
-- fields of each group.
local shapes = {
  f = { base = 7, groups = { r = 4, c = 5, b = 5 } },
  w = { base = 5, groups = { r = 3, b = 2 } },
}

-- groups returns where the first field of each group is, by the group's letter. at
-- is the position of the operation's first field.
local function groups(at, fields, shape)
  local found = {}
  local pos, stop = at + shape.base, at + fields
  while pos < stop do
    local size = shape.groups[ARGV[pos]]
    if not size or pos + size >= stop then
      bad('malformed operation')
    end
    found[ARGV[pos]] = pos + 1
    pos = pos + 1 + size
  end
  return found
end

local last, nonce, total, failed, forgiven -- what the ledger says
local cuts = {} -- what this batch is forgiven, for the ledger

-- forgive takes off what units of an outage have raised a funnel by, from (us, rem),
-- above the ceiling of the group at a position. It returns how many whole units that
-- are.
local function forgive(st, us, rem, at, D)
  local function arg(i)
    return tonumber(ARGV[at + i])
  end
  us, rem = later(us, rem, add(now, 0, arg(0), arg(1), D))
  if not less(us, rem, st.us, st.rem) then
    return 0
  end
  local over, rest = subtract(st.us, st.rem, us, rem, D)
  -- Division by the cost of a unit, exact: by that of 1, 2, 4, 8 … units.
  local steps, n, cus, crem = {}, 1, arg(3), arg(4)
  while n <= arg(2) and cus < TOP and not less(over, rest, cus, crem) do
    steps[#steps + 1] = { n, cus, crem }
    n, cus, crem = n * 2, add(cus, crem, cus, crem, D)
  end
  local cut = 0
  for i = #steps, 1, -1 do
    local s = steps[i]
    if cut + s[1] <= arg(2) and not less(over, rest, s[2], s[3]) then
      cut = cut + s[1]
      over, rest = subtract(over, rest, s[2], s[3], D)
    end
  end
  st.us, st.rem = add(us, rem, over, rest, D)
  return cut
end

-- forgave returns how many units of an operation were forgiven when the batch was
-- applied.
local function forgave(index, most)
  local units = match(',' .. forgiven .. ',', ',' .. int(index) .. ':(%d+),')
  return units and math.min(tonumber(units), most) or 0
end

local kinds = {}

-- pour books units on a funnel in the usual state, which was read ahead, and
-- reports whether it is in that. It is what most batches consist of, so that it is
-- written out: what it adds up are ahead and cost, see add and later.
local function pour(key, at, out, n)
  local v, p = ahead[key], plain(ARGV[at + 1])
  local us, rem, born
  if v then
    us, rem, born = read_plain(v, p)
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
    store(key, format(p.form, now, us, rem), rem > 0 and us + 1 or us, now, 0)
    born = now
  end
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = 'f', '0', born, us - now, rem
  return true
end

-- A kind appends its state to out, after the first n items, and returns how many
-- there are then.

kinds.f = function(key, at, fields, apply, out, n, index)
  if apply and fields == shapes.f.base and pour(key, at, out, n) then
    return n + 5
  end
  local group = groups(at, fields, shapes.f)
  local function arg(i)
    return tonumber(ARGV[at + i])
  end
  local units, rate, horizon = arg(0), ARGV[at + 1], arg(6)
  local D = tonumber((rated(rate)))
  local st = read_funnel(key, rate, now)
  local raise, cut = group.r, 0
  if apply and raise then
    local us, rem = add(now, 0, tonumber(ARGV[raise + 2]), tonumber(ARGV[raise + 3]), D)
    if us < 0 then
      us, rem = 0, 0 -- empty, for nobody knows how long
    end
    raise_funnel(st, tonumber(ARGV[raise]), tonumber(ARGV[raise + 1]), us, rem)
  end
  -- What is handed back was booked by earlier batches.
  local back = group.b and tonumber(ARGV[group.b + 2]) >= st.reset
  if back then
    -- Those who have booked behind, without the sender knowing, keep their times:
    -- to lower the level would let newcomers in at the same times once more. And
    -- where there is nothing to take off no generation begins: it would clear what
    -- nodes know that Redis has lost.
    local us, rem = level(st.us, st.rem, now)
    back = (us > 0 or rem > 0) and not less(tonumber(ARGV[group.b + 3]), tonumber(ARGV[group.b + 4]), us, rem)
  end
  if apply and back then
    st.us, st.rem = subtract(st.us, st.rem, tonumber(ARGV[group.b]), tonumber(ARGV[group.b + 1]), D)
    renew(st, now)
  end
  if apply and units > 0 then
    local us, rem = add(now, 0, arg(4), arg(5), D)
    local hadus, hadrem = st.us, st.rem
    st.us, st.rem = add(st.us, st.rem, arg(2), arg(3), D)
    st.us, st.rem = later(st.us, st.rem, us, rem)
    if group.c then
      cut = forgive(st, hadus, hadrem, group.c, D)
    end
    st.born = now
  end
  local empty = not less(now, 0, st.us, st.rem) and st.gen == 0 and st.absent
  if apply and (units > 0 or raise or back) and not empty then
    write_funnel(key, st, rate, now, horizon)
  else
    remember(key, st.us + 1, now, st.gen, horizon)
  end
  out[n + 1], out[n + 2], out[n + 3] = st.converted and 'g' or 'f', int(st.gen), st.born
  out[n + 4], out[n + 5] = st.us - now, st.rem
  if not group.c then
    return n + 5
  end
  if not apply then
    cut = forgave(index, tonumber(ARGV[group.c + 2]))
  elseif cut > 0 then
    cuts[#cuts + 1] = int(index) .. ':' .. int(cut)
  end
  out[n + 6] = cut
  return n + 6
end

-- plain_window returns what windows of no generation begin with that are written now,
-- what they have in front of their buckets, and what is the current bucket and the
-- oldest one that counts.
local panes = {}
local function plain_window(width, kept)
  local p = panes[width]
  if not p or p.kept ~= kept then
    local us = width + 0
    p = { middle = ' ' .. width, us = us, cur = (now - now % us) / us, kept = kept }
    p.head, p.size, p.oldest = 'w 0 ' .. int(now) .. p.middle, #p.middle, p.cur - kept
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
-- those that count begin, where the last of all does, and its id, units and last. Nothing is
-- wrong with a value for which it returns anything, unless the last is ahead of time:
-- ids ascend.
local function newest(v, pos, p)
  local start, last, id, units, when = pos, 0, 0, nil, nil
  local stop = #v
  while pos <= stop do
    local _, tail, i, u, w = find(v, '^ (%d+):(%d+):(%d+)', pos)
    if not tail or not digits(i) or not digits(u) or i + 0 <= id then
      return nil
    end
    if w ~= '0' and (not digits(w) or w + 0 > p.us) then
      return nil
    end
    last, id, units, when = pos, i + 0, u, w + 0
    pos = tail + 1
    if id < p.oldest then
      start = pos
    end
  end
  return start, last, id, units, when
end

-- pour_window is pour of a window: units of one bucket, to be added to the newest one
-- or to come after it.
local function pour_window(key, at, out, n)
  local v, id, units, came = ahead[key], match(ARGV[at + 4], '^ (%d+):(%d+):(%d+)$')
  if not v or #v > 4096 or not id or not digits(id) or not digits(units) then
    return false
  end
  if ARGV[at] == '0' then
    return false
  end
  local p = plain_window(ARGV[at + 1], ARGV[at + 2])
  local new = id + 0
  local born, pos = match(v, '^w 0 (%d+)()')
  if not born or not canonical(born) or sub(v, pos, pos + p.size - 1) ~= p.middle then
    return false
  end
  if new > p.cur or new < p.oldest then
    return false
  end
  local start, last, top, had, when = newest(v, pos + p.size, p)
  if not start or top > new then
    return false
  end
  ahead[key] = nil
  local list
  if top == new then
    list = sub(v, start, last) .. id .. ':' .. int(had + units) .. ':' .. int(math.max(when, came))
  else
    list = sub(v, start) .. ARGV[at + 4]
  end
  store(key, p.head .. list, (new + ARGV[at + 2] + 1) * p.us, now, 0)
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = 'w', '0', now, list
  return true
end

kinds.w = function(key, at, fields, apply, out, n)
  if apply and fields == shapes.w.base and pour_window(key, at, out, n) then
    return n + 4
  end
  local group = groups(at, fields, shapes.w)
  local units = tonumber(ARGV[at])
  local rule = {
    width = tonumber(ARGV[at + 1]),
    kept = tonumber(ARGV[at + 2]),
    horizon = tonumber(ARGV[at + 3]),
  }
  local st = read_window(key, rule, now)
  local raise = group.r
  if apply and raise then
    local known = { n = {}, l = {} }
    place(known, ARGV[raise + 2], rule.width, rule, now)
    raise_window(st, tonumber(ARGV[raise]), tonumber(ARGV[raise + 1]), known, rule.kept)
  end
  local back = group.b and tonumber(ARGV[group.b + 1]) >= st.reset
  if apply and back then
    local less = { n = {}, l = {} }
    place(less, ARGV[group.b], rule.width, rule, now)
    back = false -- see kinds.f
    for age = 0, rule.kept do
      if less.n[age] and st.n[age] then
        -- 0 is left out of the list of buckets
        st.n[age] = st.n[age] > less.n[age] and st.n[age] - less.n[age] or nil
        back = true
      end
    end
    if back then
      renew(st, now)
    end
  end
  if apply and units > 0 then
    place(st, ARGV[at + 4], rule.width, rule, now)
    st.born = now
  end
  local list
  if apply and (units > 0 or raise or back) and (next(st.n) or st.gen > 0 or not st.absent) then
    list = write_window(key, st, rule, now)
  else
    list = buckets(st, rule, now)
    remember(key, now, now, st.gen, rule.horizon)
  end
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = st.converted and 'v' or 'w', int(st.gen), st.born, list
  return n + 4
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
last, nonce, total, failed, forgiven = ledger()
local verdict = 'l'
if last == seq then
  verdict = nonce == ARGV[5] and 'd' or 'o'
elseif last > prev and last < seq and nonce == ARGV[5] then
  return { 'k', int(now), int(total), '0', failed, forgiven }
elseif last > seq then
  verdict = 's'
elseif last == prev or accept then
  verdict = 'a'
end
if verdict ~= 'a' and verdict ~= 'd' then
  return { verdict, int(now), int(total), '0' }
end

local function keep(sum, broken)
  local lists = ' ' .. (broken[1] and table.concat(broken, ',') or '-') .. ' ' .. (cuts[1] and table.concat(cuts, ',') or '-')
  redis.call('SET', KEYS[1], int(seq) .. ' ' .. ARGV[5] .. ' ' .. int(sum) .. lists, 'PX', ARGV[4])
end

-- The ledger is written before anything else: if Redis is out of memory or
-- read-only this fails, and with it the script, while nothing is applied. Once
-- one write has passed, Redis lets the others of the script pass too.
local first, apply = 6, verdict == 'a'
if apply then
  local sum, at = total, first
  for _ = 2, #KEYS do
    sum = sum + ARGV[at + 2]
    at = at + 2 + ARGV[at + 1]
  end
  keep(math.min(sum, MAX), {})
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
    ok, why = pcall(kinds[ARGV[at]] or unknown, KEYS[i], at + 2, fields, apply, out, n, i - 2)
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
if apply and (#broken > 0 or #cuts > 0) then
  keep(math.min(total, MAX), broken)
end
out[3] = int(math.min(total, MAX))
return out
