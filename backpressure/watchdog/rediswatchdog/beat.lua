-- Records heartbeats. lib.lua stands in front of it and says what is stored where.
--
-- KEYS         h, n of the partition
--
-- ARGV[1]      the scope
-- ARGV[2]      how many workers it has at most
-- then two values for each beat: the name, and join, leave, seq (19 digits), interval in
--              microseconds, state, position, pending, turns, handler, busy, nonce (32
--              characters), each followed by a space, and the detail
--
-- Returns a string for each beat: t and the token of the instance; g gone; f fenced; l
-- full; x the row is none of this version.
--
-- Atomic because Redis runs a script alone. A repeated beat finds its seq.

local ASK = {'join', 'leave', 'seq', 'interval', 'state', 'position', 'pending', 'turns', 'handler', 'busy', 'nonce'}
local scope, most = ARGV[1], tonumber(ARGV[2])

local function known(past, nonce)
  for at = 1, #past, 32 do
    if sub(past, at, at + 31) == nonce then return true end
  end
  return false
end

-- A new instance.
local function begin(r, b)
  r.nonce, r.token = b.nonce, next_token(r.token)
  r.joined, r.since = now, now
  r.stalled, r.quiet, r.running = 0, 0, 0
end

-- Adds the time since the last beat to what has not changed.
local function count(r, b)
  local since = math.min(math.max(now - r.beat, 0), 4 * tonumber(b.interval))
  local function add(mark, same) return same and mark + since or 0 end
  r.stalled = add(r.stalled, r.busy == '1' and b.busy == '1' and r.position == b.position)
  r.quiet = add(r.quiet, r.turns == b.turns and b.turns ~= '0' and r.handler == '0' and b.handler == '0')
  r.running = add(r.running, r.handler == b.handler and b.handler ~= '0')
  if r.said ~= b.state then r.since = now end
end

local function beat(name, s)
  local field = scope .. '\0' .. name
  local b, detail = split(s, ASK)
  local r = load(field)
  if r == false then return 'x' end
  if not r then
    if b.join ~= '1' then return 'g' end
    if call('ZLEXCOUNT', N, '(' .. scope .. '\0', '(' .. scope .. '\1') >= most then return 'l' end
    r = {layout = '1', token = 0, attempts = 0, givenup = '0', claim = 0, nextat = 0, acted = 0, past = '-', take = '-',
      answer = '-', settled = '1'}
    begin(r, b)
    call('ZADD', N, 0, field)
  elseif r.nonce == b.nonce then
    if r.left == '1' or b.seq <= r.seq then return 't' .. whole(r.token) end
    count(r, b)
  elseif b.join == '1' and not known(r.past, b.nonce) then
    r.past = sub((r.past == '-' and '' or r.past) .. r.nonce, -PAST)
    begin(r, b)
  else
    return 'f'
  end
  r.seq, r.interval, r.said, r.position, r.pending = b.seq, b.interval, b.state, b.position, b.pending
  r.busy, r.left, r.turns, r.handler, r.beat, r.detail = b.busy, b.leave, b.turns, b.handler, now, detail
  save(field, r)
  return 't' .. whole(r.token)
end

local reply = {}
for i = 3, #ARGV, 2 do reply[#reply + 1] = beat(ARGV[i], ARGV[i + 1]) end
return reply
