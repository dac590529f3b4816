-- Records what was seen, or decided, of findings. lib.lua and checks.lua stand in front of it
-- and say what is stored where.
--
-- KEYS      ch, cz of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   how many unresolved findings a check may have
-- ARGV[3]   lull, [4] retention, in microseconds
-- then eleven values for each report:
--   verb: 1 suspect, 2 raise, 3 wait, 4 clear, 5 acknowledge, 6 resolve, 7 forget; check;
--   subject; nonce, in 32 hexadecimal digits; version, or 0; how often; delay in microseconds;
--   account; detail; by whom; note
--
-- Returns a string with a letter for each: the number of the outcome; x what is stored is not
-- of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated report finds its nonce. What is there
-- can be decided also where the memory is full.

local kind, most, lull, retention = ARGV[1], whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
local SUSPECT, RAISE, WAIT, CLEAR, ACKNOWLEDGE, FORGET = '1', '2', '3', '4', '5', '7'
local NOTHING, DOUBTFUL, RAISED, REOPENED, COUNTED, APPLIED, CHANGED, TOOMANY = '1', '2', '3', '4', '5', '6', '7', '8'

-- Adds two numbers of at most 19 digits, which a Lua number would round.
local function plus(a, b)
  local low = (whole(sub(a, -15)) or 0) + (whole(sub(b, -15)) or 0)
  local high = (whole(sub(a, 1, -16)) or 0) + (whole(sub(b, 1, -16)) or 0)
  if low >= 1e15 then low, high = low - 1e15, high + 1 end
  if high == 0 then return format('%d', low) end
  local sum = format('%d%015d', high, low)
  local limit = '9223372036854775807'
  return (#sum > #limit or #sum == #limit and sum > limit) and limit or sum
end

local function become(f, state, r)
  local log = f.log or f.entries > 0 and call('HGET', H, field('l', f.kind, f.name)) or '1'
  if sub(log, 1, 1) ~= '1' then error(BAD) end
  f.state, f.by, f.note = state, r.by, r.note
  f.version = format('%d', math.max(whole(f.version) + 1, now))
  local left
  log, f.entries, left = logged(sub(log, 2), f.entries, format('%d %s %d ', now, state, #r.by) .. r.by .. r.note)
  f.log, f.dropped = '1' .. log, f.dropped + left
end

local function seen(f, r, dismissed)
  if dismissed then return COUNTED end
  if r.verb == SUSPECT then
    if f.state and isUnresolved(f) then return COUNTED end
    become(f, SUSPECTED, r)
    f.due, f.expires = now + r.delay, 0
    return DOUBTFUL
  end
  f.due, f.expires = now + r.delay, 0
  if f.state == OPEN or f.state == ACKNOWLEDGED then return COUNTED end
  become(f, OPEN, r)
  f.times, f.opened = f.times + 1, now
  return f.times > 1 and REOPENED or RAISED
end

-- Returns the outcome, and whether the finding is to be erased.
local function apply(f, r, dismissed)
  if r.verb == SUSPECT or r.verb == RAISE then
    local outcome = seen(f, r, dismissed)
    f.last, f.count, f.account = now, plus(f.count, r.n), r.account
    if outcome ~= COUNTED or r.verb == RAISE then f.detail = r.detail end
    if dismissed then f.expires = now + retention end
    return outcome
  end
  if r.verb == WAIT then
    if not isUnresolved(f) then return NOTHING end
    f.due = now + r.delay
    return APPLIED
  end
  if r.verb == ACKNOWLEDGE then
    if f.state ~= OPEN then return NOTHING end
    become(f, ACKNOWLEDGED, r)
    return APPLIED
  end
  if not isUnresolved(f) then return NOTHING end
  if r.verb == CLEAR and f.state == SUSPECTED and f.times == 0 then return APPLIED, true end
  become(f, RESOLVED, r)
  f.due, f.expires = 0, now + retention
  return APPLIED
end

local function report(r)
  local f = read(kind, r.check, r.subject)
  if f and hasExpired(f) then
    remove(f)
    f = nil
  end
  if f and f.nonce == r.nonce then return f.outcome end
  if r.version ~= '0' and (not f or f.version ~= r.version) then return CHANGED end
  if r.verb == FORGET then
    if f then remove(f) end
    return APPLIED
  end
  local sees = r.verb == SUSPECT or r.verb == RAISE
  if not f and not sees then return NOTHING end
  local dismissed = f and f.state == RESOLVED and f.by ~= '' and now - f.last <= lull
  if not f or sees and f.state == RESOLVED and not dismissed then
    local counts = unresolved(kind, r.check)
    if counts[1] + counts[2] + counts[3] >= most then return TOOMANY end
  end
  f = f or {kind = kind, check = r.check, subject = r.subject, name = r.check .. '\0' .. r.subject, version = '0', count = '0', times = 0,
    first = now, last = 0, opened = 0, due = 0, expires = 0, nonce = NOBODY, outcome = '0', entries = 0, dropped = 0, account = '',
    detail = '', by = '', note = ''}
  local outcome, erase = apply(f, r, dismissed)
  if erase then
    remove(f)
  elseif outcome ~= NOTHING then
    f.nonce, f.outcome = r.nonce, outcome
    save(f)
  end
  return outcome
end

local letters = {}
for i = 5, #ARGV, 11 do
  letters[#letters + 1] = item(report, {verb = ARGV[i], check = ARGV[i + 1], subject = ARGV[i + 2], nonce = ARGV[i + 3], version = ARGV[i + 4],
    n = ARGV[i + 5], delay = whole(ARGV[i + 6]), account = ARGV[i + 7], detail = ARGV[i + 8], by = ARGV[i + 9], note = ARGV[i + 10]})
end
return table.concat(letters)
