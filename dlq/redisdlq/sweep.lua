-- Forgets what need not be remembered any longer. lib.lua stands in front of it and says
-- what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how many things to look at
--
-- Returns how many were looked at, and how many letters and entries were removed.
--
-- Atomic because Redis runs a script alone. What was removed is not there for a repeated
-- call. Its first write frees memory.

local removed = 0
local forget = {}

function forget.s(stream, x, at)
  local r = readLetter(stream, x)
  if not r or unresolved(r.state) or r.expires ~= at then return end
  remove(r)
  removed = removed + 1
end

function forget.e(stream, x, at)
  local row = call('HGET', H, field('e', stream, x))
  if not row then return end
  local expires, nonce, job, verb, id, rest = match(row, '^1 %d+ (%d+) %d+ (%x+) %S+ %S+ (%S+) (%d+) (%d+) %d+ (.*)$')
  if not expires then error(BAD) end
  if whole(expires) ~= at then return end
  id = sub(rest, whole(verb) + 1, whole(verb) + whole(id))
  call('HDEL', H, field('e', stream, x), field('N', stream, nonce))
  call('ZREM', Z, field('m', stream, x), field('I', stream, id) .. '\0' .. x, field('O', stream, job) .. '\0' .. x)
  removed = removed + 1
end

function forget.j(stream, id, at)
  local row = call('HGET', H, field('j', stream, id))
  if not row then return end
  local expires = match(row, '^1 %d+ %x+ %d %d+ %d+ (%d+) ')
  if not expires then error(BAD) end
  if whole(expires) ~= at then return end
  local counts = field('J', stream, id) .. '\0'
  call('HDEL', H, field('j', stream, id), counts .. 'released', counts .. 'passed', counts .. 'failed', counts .. 'moved')
  call('ZREM', Z, field('w', stream, id))
end

function forget.a(stream, print, at)
  local row = call('HGET', H, field('a', stream, print))
  if not row then return end
  local ends = match(row, '^1 %x+ (%d+)$')
  if not ends then error(BAD) end
  if whole(ends) == at then call('HDEL', H, field('a', stream, print)) end
end

function forget.k(stream, lane, at)
  local k = readLane(stream, lane)
  if k.idle ~= at or firstOf(stream, lane) then return end
  call('HDEL', H, field('k', stream, lane))
  if k.nonce ~= NOBODY then call('ZREM', Z, 'n' .. k.nonce .. stream .. '\0' .. lane) end
end

local looked = 0
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[t', '(t' .. time(now + 1), 'LIMIT', 0, whole(ARGV[1]))) do
  local nul = string.find(member, '\0', 1, true)
  looked = looked + 1
  item(forget[sub(member, 18, 18)], sub(member, 19, nul - 1), sub(member, nul + 1), whole(sub(member, 2, 17)))
  call('ZREM', Z, member) -- also when the row, which stays, is not of this version: it must not stop the others
end
return {looked, removed}
