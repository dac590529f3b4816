-- Stores letters. lib.lua stands in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how many unresolved letters a stream may have
-- then eight values for each letter:
--   nonce, in 32 hexadecimal digits; stream; ID; key; digest (43);
--   1 if it is only to be stored behind others, and delay in microseconds, in one string;
--   failure, or nothing; body
--
-- Returns a string with a letter for each: a added  d duplicate  n not blocked  f full;
-- x what is stored is not of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated letter finds its nonce.

local capacity = whole(ARGV[1])

local function newest(stream, id)
  local name = field('i', stream, id)
  local member = call('ZREVRANGEBYLEX', Z, '(' .. name .. '\1', '[' .. name .. '\0', 'LIMIT', 0, 1)[1]
  return member and readLetter(stream, sub(member, -16))
end

local function duplicate(r, nonce, delay, failure)
  local log = failure ~= '' and readLog(r)
  local k = log and r.begun ~= '0' and readLane(r.stream, laneOf(r.id, r.key, r.aside))
  if log then
    readGroup(r.stream, r.print) -- these fail before anything is written
    readGroup(r.stream, select(2, match(failure, FAILURE)))
  end
  if log then fail(r, log, failure) end
  if k then r.begun, r.next = '0', now + delay end -- its worker does not know of the failure
  r.putBy, r.putAs = nonce, '2'
  writeLetter(r)
  if k then schedule(k, r) end -- what is begun is the first
  return 'd'
end

local function isFull(stream)
  local counts = call('HMGET', H, field('c', stream, WAITING), field('c', stream, REVIEW))
  return whole(counts[1] or '0') + whole(counts[2] or '0') >= capacity
end

local function put(nonce, stream, id, key, digest, meta, failure, body)
  local r = newest(stream, id)
  if r and r.putBy == nonce then return r.putAs == '1' and 'a' or 'd' end
  if r and unresolved(r.state) then return duplicate(r, nonce, whole(sub(meta, 2)), failure) end
  local lane = laneOf(id, key, false)
  if sub(meta, 1, 1) == '1' and not firstOf(stream, lane) then return 'n' end
  if isFull(stream) then return 'f' end

  local k = readLane(stream, lane)
  local log = failure ~= '' and {n = 0, others = 0, folds = {}, slot = 0}
  if log then readGroup(stream, select(2, match(failure, FAILURE))) end
  r = {stream = stream, x = nextNumber(stream), state = WAITING, aside = false, counted = '0', edited = '0', tries = 0, putAs = '1',
    put = now, next = now + whole(sub(meta, 2)), settled = 0, expires = 0, begun = '0', settledBy = '0', settledAs = '0',
    putBy = nonce, digest = digest, print = NONE, job = NONE, key = key, id = id}
  local written = redis.pcall('HSET', H, 'x' .. stream, r.x, field('b', stream, r.x), '1' .. body)
  if type(written) == 'table' and written.err then
    if string.find(written.err, 'OOM', 1, true) then return 'f' end
    error(written, 0)
  end
  if count(stream, WAITING, 1) == 1 then call('ZADD', Z, 0, 'y' .. stream) end
  local scored = {}
  for i, member in ipairs(finders(r)) do scored[2 * i - 1], scored[2 * i] = 0, member end
  call('ZADD', Z, unpack(scored))
  if log then fail(r, log, failure) end
  writeLetter(r)
  enter(r, k)
  return 'a'
end

local letters = {}
for i = 2, #ARGV, 8 do
  letters[#letters + 1] = item(put, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7])
end
return table.concat(letters)
