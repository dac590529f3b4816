-- Takes keys of a stream for one worker. lib.lua stands in front of it and says what
-- is stored where.
--
-- KEYS      h, z of one partition, or of several that lie on one server
--
-- ARGV[1]   nonce, in 32 hexadecimal digits
-- ARGV[2]   stream
-- ARGV[3]   lease in microseconds
-- ARGV[4]   most records of a key
-- ARGV[5]   most bytes of payload and context of a key, but one record in any case
-- ARGV[6]   most keys
-- ARGV[7]   1: take nothing, say only what is due
--
-- Returns the time in microseconds; how long until the next key is due, 0 if there
-- is none; how many keys follow; and for each of them which of the partitions it is
-- in, token, how much of the lease is left, 1 if it has more records, and how many
-- follow, separated by spaces; the key; and for each record its number and its rows
-- s, r, b, l and a. With ARGV[7], when the nonce has no keys, the times follow
-- instead since when keys are due, each with the number of its first record.
--
-- Atomic because Redis runs a script alone: nobody sees a key between the look at
-- its lease and the write. A repeated claim finds its nonce.

local nonce, stream, lease, events, bytes, want, peek = ARGV[1], ARGV[2], whole(ARGV[3]), whole(ARGV[4]), whole(ARGV[5]),
  whole(ARGV[6]), ARGV[7] == '1'
local partitions, claims = #KEYS / 2, {}

local function answer(p, k)
  local list = call('ZRANGEBYLEX', Z, '[q' .. k.name .. '\0', '(q' .. k.name .. '\1', 'LIMIT', 0, events + 1)
  local size, more, n, out = 0, '0', 0, {'', sub(k.name, #stream + 2)}
  for i, member in ipairs(list) do
    if i > events or i > 1 and size >= bytes then
      more = '1'
      break
    end
    local body = tell(sub(member, -16), out)
    n = i
    if body ~= '' then size = size + #body - 12 - whole(sub(body, 9, 12)) end
  end
  out[1] = format('%d %s %d %s %d', p, k.token, k.lease - now, more, n)
  claims[#claims + 1] = out
end

local function take(p, key)
  local k = readKey(stream .. '\0' .. key)
  local x = firstOf(k.name)
  local r = x and readRecord(x)
  if k.new or not r or k.lease > now then error(BAD) end
  if k.nonce ~= NOBODY then call('ZREM', Z, 'n' .. k.nonce .. k.name) end
  k.token, k.nonce, k.lease = format('%d', math.max(whole(k.token) + 1, now)), nonce, now + lease
  schedule(k)
  call('ZADD', Z, 0, 'n' .. nonce .. k.name)
  begin(k, r)
  answer(p, k)
end

for p = 1, partitions do -- first what the nonce has
  use(p)
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '[n' .. nonce .. stream .. '\0', '(n' .. nonce .. stream .. '\1')) do
    local k = readKey(sub(member, 34))
    if k.nonce == nonce and k.lease > now then answer(p, k) end
  end
end

local next, since = 0, {}
if #claims == 0 then
  local due, skip = {}, #stream + 3
  for p = 1, partitions do
    use(p)
    local list = call('ZRANGEBYLEX', Z, '[d' .. stream .. '\0', '(d' .. stream .. '\0' .. time(now + 1), 'LIMIT', 0, want)
    for _, member in ipairs(list) do due[#due + 1] = {sub(member, skip), p, member} end
  end
  table.sort(due, function(a, b) return a[1] < b[1] end)
  for i = 1, math.min(want, #due) do
    local one = due[i]
    use(one[2])
    if peek then
      since[i] = sub(one[1], 1, 32)
    elseif item(take, one[2], sub(one[1], 33)) == 'x' then
      call('ZREM', Z, one[3]) -- not a row of this version: it must not stop the others
    end
  end
  for p = 1, partitions do
    use(p)
    local later = call('ZRANGEBYLEX', Z, '[d' .. stream .. '\0' .. time(now + 1), '(d' .. stream .. '\1', 'LIMIT', 0, 1)[1]
    if later then
      local left = whole(sub(later, skip, skip + 15)) - now
      if next == 0 or left < next then next = left end
    end
  end
end

local reply, n = {format('%d', now), format('%d', next), format('%d', #claims)}, 3
for _, c in ipairs(claims) do
  for i = 1, #c do reply[n + i] = c[i] end
  n = n + #c
end
for i, at in ipairs(since) do reply[n + i] = at end
return reply
