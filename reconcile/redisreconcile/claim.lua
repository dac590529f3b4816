-- Takes due operations of a kind. lib.lua and ledger.lua stand in front of it and say what
-- is stored where.
--
-- KEYS      h, z of one partition, or of several that lie on one server
--
-- ARGV[1]   kind
-- ARGV[2]   nonce, in 32 hexadecimal digits
-- ARGV[3]   lease in microseconds
-- ARGV[4]   most operations
-- ARGV[5]   stop after the operation that brings the rows to so many bytes
-- ARGV[6]   1: take nothing, say only what is due
--
-- Returns the time in microseconds; how long until the next operation can be taken, 0 if
-- there is none; how many follow; for each its key and its rows s, p, r and l; and with
-- ARGV[6], when the nonce has none, the times since when operations are due, with their
-- keys.
--
-- Atomic because Redis runs a script alone: nobody sees an operation between the look at
-- its lease and the write. A repeated claim finds its nonce.

local kind, nonce, lease, want, bytes, peek = ARGV[1], ARGV[2], whole(ARGV[3]), whole(ARGV[4]), whole(ARGV[5]), ARGV[6] == '1'
local partitions, taken, size = #KEYS / 2, {}, 0

local function answer(r)
  local rows = {r.key}
  size = size + tell(r, rows)
  taken[#taken + 1] = rows
end

for p = 1, partitions do -- first what the nonce has
  use(p)
  local mine = 'n' .. nonce .. kind .. '\0'
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. mine, '(n' .. nonce .. kind .. '\1')) do
    item(function()
      local r = read(kind, sub(member, #mine + 1))
      if r and r.nonce == nonce and granted(r) then answer(r) end
    end)
  end
end

-- What is due: since when, and the key. Of those whose lease has lapsed, those whose lapsed
-- first, if they are very many. What is not of this version stays where it is and must not
-- stop the others, so that some more are looked at than are wanted.
local due, next = {}, 0
local function scan(p, letter, skip, most)
  local list = letter .. kind .. '\0'
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. list, '(' .. list .. time(now + 1), 'LIMIT', 0, most)) do
    due[#due + 1] = {sub(member, #list + skip), p, member}
  end
end
local function later(letter)
  local list = letter .. kind .. '\0'
  local member = call('ZRANGEBYLEX', Z, '[' .. list .. time(now + 1), '(' .. letter .. kind .. '\1', 'LIMIT', 0, 1)[1]
  if not member then return end
  local left = whole(sub(member, #list + 1, #list + 16)) - now
  if next == 0 or left < next then next = left end
end

local function take(member, key)
  local r = read(kind, key)
  if not r or dueMember(r) ~= member then -- left behind by a part of a step
    call('ZREM', Z, member)
    error(BAD)
  end
  look(r, nonce, lease)
  save(r)
  answer(r)
end

local since = {}
if #taken == 0 then
  for p = 1, partitions do
    use(p)
    scan(p, 'd', 1, want + 64)
    scan(p, 'l', 17, want + 512)
  end
  table.sort(due, function(a, b) return a[1] < b[1] end)
  for _, one in ipairs(due) do
    if #taken == want or #since == want or size >= bytes then break end
    if peek then
      since[#since + 1] = one[1]
    else
      use(one[2])
      item(take, one[3], sub(one[1], 17))
    end
  end
  if not peek and size >= bytes and #taken < want and #taken < #due then
    next = 1
  else
    for p = 1, partitions do
      use(p)
      later('d')
      later('l')
    end
  end
end

local reply = {format('%d', now), format('%d', next), format('%d', #taken)}
for _, rows in ipairs(taken) do
  for _, row in ipairs(rows) do reply[#reply + 1] = row end
end
for _, at in ipairs(since) do reply[#reply + 1] = at end
return reply
