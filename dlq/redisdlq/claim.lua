-- Takes lanes of a stream for one worker. lib.lua stands in front of it and says what is
-- stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   nonce, in 32 hexadecimal digits
-- ARGV[2]   stream
-- ARGV[3]   lease in microseconds
-- ARGV[4]   most lanes
-- ARGV[5]   stop after the letter that brings the bodies to so many bytes
--
-- Returns how long until the next lane can be claimed, 0 if there is none; and for each
-- lane its token and how much of the lease is left, separated by a space, and of its
-- letter the number and the rows s, b, o, g and f.
--
-- Atomic because Redis runs a script alone: nobody sees a lane between the look at its
-- lease and the write. A repeated claim finds its nonce.

local nonce, stream, lease, want, bytes = ARGV[1], ARGV[2], whole(ARGV[3]), whole(ARGV[4]), whole(ARGV[5])
local reply, size = {'0'}, 0

local function answer(k, x)
  reply[#reply + 1] = k.token .. ' ' .. format('%d', k.lease - now)
  size = size + tell(stream, x, reply)
end

local mine = 'n' .. nonce .. stream .. '\0'
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. mine, '(n' .. nonce .. stream .. '\1')) do -- first what the nonce has
  item(function()
    local k = readLane(stream, sub(member, #mine + 1))
    local x = firstOf(stream, k.name)
    local r = x and readLetter(stream, x)
    if k.nonce == nonce and k.lease > now and r and r.begun == k.token then answer(k, x) end
  end)
end
if #reply > 1 then return reply end

local function take(member, due, lane)
  local k, r = readLane(stream, lane), readLetter(stream, sub(due, 17))
  if k.due ~= due or k.lease > now or not r or r.state ~= WAITING then error(BAD) end
  call('ZREM', Z, member) -- the first write frees memory, so that work goes on when it is full
  k.due = NEVER
  if k.nonce ~= NOBODY then call('ZREM', Z, 'n' .. k.nonce .. stream .. '\0' .. lane) end
  k.token, k.nonce, k.lease = format('%d', math.max(whole(k.token) + 1, now)), nonce, now + lease
  r.begun, r.settledBy, r.settledAs, r.tries = k.token, '0', '0', r.tries + 1
  writeLetter(r)
  schedule(k, r)
  call('ZADD', Z, 0, mine .. lane)
  answer(k, r.x)
end

-- What is not of this version stays where it is and must not stop the others, so that
-- some more are looked at than are wanted.
local list, taken = field('d', stream, ''), 0
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. list, '(' .. list .. time(now + 1), 'LIMIT', 0, want + 64)) do
  if taken == want or size >= bytes and taken > 0 then break end
  local rest = sub(member, #list + 1)
  if item(take, member, sub(rest, 1, 32), sub(rest, 33)) ~= 'x' then taken = taken + 1 end
end
if taken < want and size < bytes then
  local later = call('ZRANGEBYLEX', Z, '[' .. list .. time(now + 1), '(d' .. stream .. '\1', 'LIMIT', 0, 1)[1]
  if later then reply[1] = format('%d', whole(sub(later, #list + 1, #list + 16)) - now) end
end
return reply
