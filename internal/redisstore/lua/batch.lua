-- Applies the batch of one node to one shard, exactly once.
--
-- KEYS[1]   the node's ledger: "<seq> <nonce> <total> <failed> <forgiven>".
--           The last two are "-", or what the batch seq has failed with (index,…) and
--           what it was forgiven (index:units,…)
-- KEYS[2..] one counter per operation
-- ARGV      seq, prev, accept (0 or 1), TTL of the ledger in ms, nonce (16 random hex
--           digits, the same each time that a batch is sent), the sum of all units,
--           two texts of lines, which cost less than as many arguments, and for how many ms
--           a node may wait before it reports.
-- Rules, of which the first of its kind is called f1 or w1, whatever its line:
--   f <rate> <horizon ms> <us> <rem>   the last two are what one unit costs
--   w <width us> <kept> <horizon ms>
-- Operations, with the name of their rule:
--   f1 <units> <cost us> <cost rem> <ahead us> <ahead rem>   ahead us below 0 if these
--           units by themselves have leaked for so long
--   w1 <units> <id>:<units>:<last> …   a list of buckets, which may be empty
--           Behind each there may be groups, in any order:
--   ;r      raise the counter first
--      f: <generation> <born> <level us> <level rem>, us below 0 if it has been empty
--         for so long
--      w: <generation> <born> and buckets
--   ;c      units of an outage, of which those are forgiven that would raise the counter
--           above a ceiling
--      f: <ceiling us> <rem> <how many they are>
--   ;b      hand back units that earlier batches booked
--      f: <cost us> <cost rem> <the generation in which they were handed back>
--         <level us> <level rem>, above which others have booked behind them
--      w: <that generation> and their buckets
-- Reply     a text of lines. The first is <verdict> <Redis' time in us> <total>. Then
--           there is one for each operation, of a counter
--   <us> <rem>                       that has no generation and was booked on now: a
--    <id>:<units>:<last> …           funnel is empty at us + rem/D, maybe in the past, or
--                                    a window has these buckets
--   f <generation> <born> <us> <rem> that is anything else. If there was a group c, how
--   w <generation> <born> <buckets>  many units are forgiven follows
--   g …, v …                         the same of a funnel that has leaked at another
--                                    rate before, a window that had buckets of another width
--   e <reason>                       that has failed: nothing was booked on it
--   b <reason>                       that was booked on when the batch was applied, but
--                                    cannot be read now
--
-- Verdicts: a applied, d duplicate (this very batch had been applied, nothing
-- is now), o other (the batch of this number was another one, so that somebody
-- else goes by the node's name: nothing is applied, no states), s stale (an older
-- batch: nothing is applied, no states), k (a batch of this nonce was applied under an
-- earlier number, after prev: nothing is applied, and instead of states there is one line,
-- that number, what has failed and what was forgiven then, as the ledger has it), l lost (the ledger
-- does not know the batch before this one, Redis has lost data: nothing is applied, no
-- states).

local KEYS, ARGV = KEYS, ARGV -- global names are slower to find
-- Others may report units of the same time, as late as they may wait: together they may fill what
-- each by itself does not. So a counter outlives its meaning for so much longer, and a funnel
-- that has run empty before its units were reported is kept.
SLACK = SLACK + tonumber(ARGV[9] or '0')
local MEMORY = SLACK * 1000
local now = clock()
local rules, ops = {}, ARGV[8] -- rules by their name

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

local last, nonce, total, failed, forgiven -- what the ledger says
local cuts = {} -- what this batch is forgiven, for the ledger

-- read_rules reads what the operations are booked under.
local function read_rules(text)
  local count = { f = 0, w = 0 }
  for kind, line in string.gmatch(text, '([fw]) ([^\n]*)\n') do
    local rule = {}
    if kind == 'f' then
      local rate, horizon, us, rem = match(line, '^(%S+) (%d+) (%d+) (%d+)$')
      rule.rate, rule.horizon, rule.us, rule.rem = rate, tonumber(horizon), tonumber(us), tonumber(rem)
      rule.D = tonumber((rated(rate)))
      -- What a funnel of no generation is, and begins with if it is written now.
      rule.form = '^f 0 ([1-9]%d*) ' .. string.gsub(rate, '%.', '%%.') .. ' ([1-9]%d*) (%d+)$'
      rule.head = 'f 0 ' .. int(now) .. ' ' .. rate .. ' '
    else
      local width, kept, horizon = match(line, '^(%d+) (%d+) (%d+)$')
      rule.width, rule.kept, rule.horizon = tonumber(width), tonumber(kept), tonumber(horizon)
      rule.current = (now - now % rule.width) / rule.width
      rule.oldest = rule.current - rule.kept
      rule.form = '^w 0 ([1-9]%d*) ' .. width .. '()'
      rule.head = 'w 0 ' .. int(now) .. ' ' .. width
    end
    count[kind] = count[kind] + 1
    rules[kind .. int(count[kind])] = rule
  end
end

-- A counter's kind reads its operations into tables, by the names of fields: first
-- what each operation has, then each group by its letter.
local readers = { f = {}, w = {} }

function readers.f.base(op, text)
  local units, us, rem, ahead_us, ahead_rem = match(text, '^ (%d+) (%d+) (%d+) (%-?%d+) (%d+)$')
  op.units, op.us, op.rem = tonumber(units), tonumber(us), tonumber(rem)
  op.ahead_us, op.ahead_rem = tonumber(ahead_us), tonumber(ahead_rem)
  return units
end

function readers.f.r(op, text)
  local gen, born, us, rem = match(text, '^ (%d+) (%d+) (%-?%d+) (%d+)$')
  op.raise = { gen = tonumber(gen), born = tonumber(born), us = tonumber(us), rem = tonumber(rem) }
  return gen
end

function readers.f.c(op, text)
  local us, rem, units = match(text, '^ (%d+) (%d+) (%d+)$')
  op.debt = { us = tonumber(us), rem = tonumber(rem), units = tonumber(units) }
  return us
end

function readers.f.b(op, text)
  local us, rem, gen, top_us, top_rem = match(text, '^ (%d+) (%d+) (%d+) (%d+) (%d+)$')
  op.back = { us = tonumber(us), rem = tonumber(rem), gen = tonumber(gen) }
  op.back.top_us, op.back.top_rem = tonumber(top_us), tonumber(top_rem)
  return us
end

function readers.w.base(op, text)
  local units, list = match(text, '^ (%d+)(.*)$')
  op.units, op.list = tonumber(units), list
  return units
end

function readers.w.r(op, text)
  local gen, born, list = match(text, '^ (%d+) (%d+)(.*)$')
  op.raise = { gen = tonumber(gen), born = tonumber(born), list = list }
  return gen
end

function readers.w.b(op, text)
  local gen, list = match(text, '^ (%d+)(.*)$')
  op.back = { gen = tonumber(gen), list = list }
  return gen
end

-- read_op reads the operation in a line. What is wrong with it is its key's fault.
local function read_op(line)
  local name, kind, base, groups = match(line, '^(([fw])%d+)([^;]*)(.*)$')
  local reader, op = readers[kind], { kind = kind, rule = rules[name or ''] }
  if not op.rule then
    bad('unknown kind of operation')
  end
  local fine, at = reader.base(op, base), 1
  while fine and at <= #groups do
    local _, stop, letter, text = find(groups, '^;(%a)([^;]+)', at)
    fine = stop and reader[letter] and reader[letter](op, text)
    at = (stop or at) + 1
  end
  if not fine then
    bad('malformed operation')
  end
  return op
end

-- forgive takes off what units of an outage have raised a funnel by, from (us, rem),
-- above a ceiling. It returns how many whole units that are.
local function forgive(st, us, rem, debt, rule)
  local D = rule.D
  us, rem = later(us, rem, add(now, 0, debt.us, debt.rem, D))
  if not less(us, rem, st.us, st.rem) then
    return 0
  end
  local over, rest = subtract(st.us, st.rem, us, rem, D)
  -- Division by the cost of a unit, exact: by that of 1, 2, 4, 8 … units.
  local steps, n, cus, crem = {}, 1, rule.us, rule.rem
  while n <= debt.units and cus < TOP and not less(over, rest, cus, crem) do
    steps[#steps + 1] = { n, cus, crem }
    n, cus, crem = n * 2, add(cus, crem, cus, crem, D)
  end
  local cut = 0
  for i = #steps, 1, -1 do
    local s = steps[i]
    if cut + s[1] <= debt.units and not less(over, rest, s[2], s[3]) then
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

-- A kind books an operation, unless it is only to say what there is, and returns the
-- counter's line of the reply.
local kinds = {}

function kinds.f(key, op, apply, index)
  local rule, D = op.rule, op.rule.D
  local st = read_funnel(key, rule.rate, now)
  local raise, back, cut = op.raise, op.back, 0
  if apply and raise then
    local us, rem = add(now, 0, raise.us, raise.rem, D)
    if us < 0 then
      us, rem = 0, 0 -- empty, for nobody knows how long
    end
    raise_funnel(st, raise.gen, raise.born, us, rem)
  end
  -- What is handed back was booked by earlier batches.
  local comes_off = back and back.gen >= st.reset
  if comes_off then
    -- Those who have booked behind, without the sender knowing, keep their times:
    -- to lower the level would let newcomers in at the same times once more. And
    -- where there is nothing to take off no generation begins: it would clear what
    -- nodes know that Redis has lost.
    local us, rem = level(st.us, st.rem, now)
    comes_off = (us > 0 or rem > 0) and not less(back.top_us, back.top_rem, us, rem)
  end
  if apply and comes_off then
    st.us, st.rem = subtract(st.us, st.rem, back.us, back.rem, D)
    renew(st, now)
  end
  if apply and op.units > 0 then
    local us, rem = add(now, 0, op.ahead_us, op.ahead_rem, D)
    local hadus, hadrem = st.us, st.rem
    st.us, st.rem = add(st.us, st.rem, op.us, op.rem, D)
    st.us, st.rem = later(st.us, st.rem, us, rem)
    if op.debt then
      cut = forgive(st, hadus, hadrem, op.debt, rule)
    end
    st.born = now
  end
  local empty = not less(op.units > 0 and now - MEMORY or now, 0, st.us, st.rem) and st.gen == 0 and st.absent
  if apply and (op.units > 0 or raise or comes_off) and not empty then
    write_funnel(key, st, rule.rate, now, rule.horizon)
  else
    remember(key, st.us + 1, now, st.gen, rule.horizon)
  end
  local line = (st.converted and 'g ' or 'f ') .. int(st.gen) .. ' ' .. int(st.born) .. ' ' .. pair(st.us, st.rem)
  if not op.debt then
    return line
  end
  if not apply then
    cut = forgave(index, op.debt.units)
  elseif cut > 0 then
    cuts[#cuts + 1] = int(index) .. ':' .. int(cut)
  end
  return line .. ' ' .. int(cut)
end

function kinds.w(key, op, apply)
  local rule, raise, back = op.rule, op.raise, op.back
  local st = read_window(key, rule, now)
  if apply and raise then
    local known = { n = {}, l = {} }
    place(known, raise.list, rule.width, rule, now)
    raise_window(st, raise.gen, raise.born, known, rule.kept)
  end
  local comes_off = back and back.gen >= st.reset
  if apply and comes_off then
    local less = { n = {}, l = {} }
    place(less, back.list, rule.width, rule, now)
    comes_off = false -- see kinds.f
    for age = 0, rule.kept do
      if less.n[age] and st.n[age] then
        -- 0 is left out of the list of buckets
        st.n[age] = st.n[age] > less.n[age] and st.n[age] - less.n[age] or nil
        comes_off = true
      end
    end
    if comes_off then
      renew(st, now)
    end
  end
  if apply and op.units > 0 then
    place(st, op.list, rule.width, rule, now)
    st.born = now
  end
  local list
  if apply and (op.units > 0 or raise or comes_off) and (next(st.n) or st.gen > 0 or not st.absent) then
    list = write_window(key, st, rule, now)
  else
    list = buckets(st, rule, now)
    remember(key, now, now, st.gen, rule.horizon)
  end
  return (st.converted and 'v ' or 'w ') .. int(st.gen) .. ' ' .. int(st.born) .. list
end

-- The short ways. Most operations only book units, and most counters have no
-- generation and the rule's own rate or width, or are not there. Whoever gets nil must
-- go the long way: nothing has been done. BenchmarkExec with pauses, processor time of
-- Redis per key: funnel 5.9 µs, the long way 10.2; window 7.6 µs, the long way 14.9.

-- fresh keeps a state of no generation that is written now, unless something other
-- than a text is at its key.
local function fresh(key, known, value, untilus)
  local text = spell(lasts(key, untilus, now, 0))
  if known then
    ahead[key] = nil
    return call('SET', key, value, 'PX', text)
  end
  return call('SET', key, value, 'PX', text, 'NX')
end

-- canonical reports whether digits that do not begin with 0 are a time of today.
local function canonical(s)
  return #s == 16 and s <= '9007199254740991'
end

-- pour books units on a funnel. What it adds up are cost and ahead, see add and later.
local function pour(key, pos)
  local _, stop, name, units, cost_us, cost_rem, ahead_us, ahead_rem =
    find(ops, '^(f%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+)\n', pos)
  local rule = rules[name or '']
  if not rule or units == '0' then
    return nil
  end
  local v, us, rem, D = ahead[key], 0, 0, rule.D
  if v then
    local born
    born, us, rem = match(v, rule.form)
    if not born or not canonical(born) or byte(rem) == 48 and rem ~= '0' then
      return nil
    end
    us, rem = us + 0, rem + 0
    if us > TOP or rem >= D then
      return nil
    end
  end
  us, rem = us + cost_us, rem + cost_rem
  if rem >= D then
    us, rem = us + 1, rem - D
  end
  local least, rest = now + ahead_us, ahead_rem + 0
  if us < least or (us == least and rem < rest) then
    us, rem = least, rest
  end
  if us > TOP or not v and not less(now - MEMORY, 0, us, rem) then -- nothing to keep
    return nil
  end
  local text = pair(us, rem)
  if not fresh(key, v, rule.head .. text, rem > 0 and us + 1 or us) then
    return nil
  end
  return text, stop
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
local function newest(v, pos, rule)
  local start, last, id, units, when = pos, 0, 0, nil, nil
  local stop = #v
  while pos <= stop do
    local _, tail, i, u, w = find(v, '^ (%d+):(%d+):(%d+)', pos)
    if not tail or not digits(i) or not digits(u) or i + 0 <= id then
      return nil
    end
    if w ~= '0' and (not digits(w) or w + 0 > rule.width) then
      return nil
    end
    last, id, units, when = pos, i + 0, u, w + 0
    pos = tail + 1
    if id < rule.oldest then
      start = pos
    end
  end
  return start, last, id, units, when
end

-- pour_window books units of one bucket on a window, to be added to the newest one or
-- to come after it.
local function pour_window(key, pos)
  local _, stop, name, booked, list, id, units, came = find(ops, '^(w%d+) (%d+)( (%d+):(%d+):(%d+))\n', pos)
  local rule = rules[name or '']
  if not rule or booked == '0' or not digits(id) or not digits(units) then
    return nil
  end
  local v, new = ahead[key], id + 0
  if new > rule.current or new < rule.oldest then
    return nil
  end
  if v then
    local born, from = match(v, rule.form)
    if not born or not canonical(born) or #v > 4096 then
      return nil
    end
    local start, last, top, had, when = newest(v, from, rule)
    if not start or top > new then
      return nil
    end
    if top == new then
      list = sub(v, start, last) .. id .. ':' .. int(had + units) .. ':' .. int(math.max(when, came))
    else
      list = sub(v, start) .. list
    end
  end
  if not fresh(key, v, rule.head .. list, (new + rule.kept + 1) * rule.width) then
    return nil
  end
  return list, stop
end

-- reason puts what pcall caught into words, on one line.
local function reason(why)
  if type(why) == 'table' then
    why = why.err
  end
  why = string.gsub(tostring(why), '^!', '')
  return (string.gsub(why, '\n', ' '))
end

local seq, prev, accept = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
look_ahead(KEYS)
last, nonce, total, failed, forgiven = ledger()
local verdict = 'l'
if last == seq then
  verdict = nonce == ARGV[5] and 'd' or 'o'
elseif last > prev and last < seq and nonce == ARGV[5] then
  return 'k ' .. int(now) .. ' ' .. int(total) .. '\n' .. int(last) .. ' ' .. failed .. ' ' .. forgiven
elseif last > seq then
  verdict = 's'
elseif last == prev or accept then
  verdict = 'a'
end
if verdict ~= 'a' and verdict ~= 'd' then
  return verdict .. ' ' .. int(now) .. ' ' .. int(total)
end

local function keep(sum, broken)
  local lists = ' ' .. (broken[1] and table.concat(broken, ',') or '-') .. ' ' .. (cuts[1] and table.concat(cuts, ',') or '-')
  redis.call('SET', KEYS[1], int(seq) .. ' ' .. ARGV[5] .. ' ' .. int(sum) .. lists, 'PX', ARGV[4])
end

-- The ledger is written before anything else: if Redis is out of memory or
-- read-only this fails, and with it the script, while nothing is applied. Once
-- one write has passed, Redis lets the others of the script pass too.
local apply = verdict == 'a'
local sum = apply and math.min(total + ARGV[6], MAX) or total
if apply then
  keep(sum, {})
end

local out, broken = { '' }, {}

-- fails reports whether an operation is among those in a list.
local function fails(list, index)
  return find(',' .. list .. ',', ',' .. int(index) .. ',', 1, true)
end

-- ending returns where the line at pos ends.
local function ending(pos)
  return find(ops, '\n', pos, true) or #ops + 1
end

local function short(key, pos)
  if apply and byte(ops, pos) == 102 then -- f
    return pour(key, pos)
  elseif apply then
    return pour_window(key, pos)
  end
end

local function long(key, pos, index)
  local stop = ending(pos)
  if not apply and fails(failed, index) then
    bad('failed when the batch was applied')
  end
  local op = read_op(sub(ops, pos, stop - 1))
  return kinds[op.kind](key, op, apply, index), stop
end

-- run works on operations from the one at hand on.
local hand = { i = 2, pos = 1 }
local function run()
  local pos = hand.pos
  for i = hand.i, #KEYS do
    hand.i, hand.pos = i, pos
    local key = KEYS[i]
    local line, stop = short(key, pos)
    if not line then
      line, stop = long(key, pos, i - 2)
    end
    out[i], pos = line, stop + 1
  end
  return true
end

-- An operation fails alone, whatever goes wrong: the ledger says already that the batch
-- was applied.
read_rules(ARGV[7])
local done, why = pcall(run)
while not done do
  local i = hand.i
  -- A duplicate has been booked the first time, unless the ledger says that it failed.
  out[i] = ((apply or fails(failed, i - 2)) and 'e ' or 'b ') .. reason(why)
  broken[#broken + 1] = int(i - 2)
  hand.i, hand.pos = i + 1, ending(hand.pos) + 1
  done, why = pcall(run)
end

if apply and (broken[1] or cuts[1]) then
  if broken[1] then
    local failures, index = table.concat(broken, ','), 0
    sum = total
    for line in string.gmatch(ops, '([^\n]*)\n') do
      if not fails(failures, index) then
        sum = sum + match(line, '^%a%d+ (%d+)')
      end
      index = index + 1
    end
  end
  keep(math.min(sum, MAX), broken)
end
out[1] = verdict .. ' ' .. int(now) .. ' ' .. int(math.min(sum, MAX))
return table.concat(out, '\n')
