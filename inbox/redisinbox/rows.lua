-- Says in which partition events are, in the partition of their IDs. lib.lua stands
-- in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV      four values for each item: what to do, ID, nonce, and more:
--   r   the row is to say this nonce and the partition in which the event will be (more
--       is the partition, three digits, and then the nonce of the row that may be
--       replaced, or nothing). Another row stays.
--   d   the row goes, if it has this nonce
--   c   the row with this nonce leads to an event: it need not be looked at again
--
-- Returns the time in microseconds, and of each item the nonce and the partition of
-- the row, or nothing if there is none. x instead: it is not of this version.
--
-- Atomic because Redis runs a script alone. Every item is the same when it is sent
-- twice: the second finds the nonce that the first has written.

local function row(what, id, nonce, more)
  local row = call('HGET', H, 'i' .. id)
  if row and sub(row, 1, 1) ~= '1' then error(BAD) end
  local at, was, place = '', '', ''
  if row then at, was, place = sub(row, 2, 17), sub(row, 18, 39), sub(row, 40) end
  if what == 'r' then
    if row and was ~= sub(more, 4) then return was .. place end
    call('HSET', H, 'i' .. id, '1' .. time(now) .. nonce .. sub(more, 1, 3))
    call('ZADD', Z, 0, 'v' .. time(now) .. id)
    return nonce .. sub(more, 1, 3)
  end
  if not row or was ~= nonce then return was .. place end
  call('ZREM', Z, 'v' .. at .. id)
  if what == 'd' then
    call('HDEL', H, 'i' .. id)
    return ''
  end
  return was .. place
end

local reply = {time(now)}
for i = 1, #ARGV, 4 do reply[#reply + 1] = item(row, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
return reply
