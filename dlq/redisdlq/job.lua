-- Stores a redrive job. lib.lua stands in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how long a job that has ended is kept, in microseconds
-- ARGV[2]   stream, [3] ID, [4] nonce in 32 hexadecimal digits, [5] the version that is
--           to be replaced, or 0, [6] 1 if it has ended, [7] data
--
-- Returns . saved, now or before; c there is another version; n there is none; x what is
-- stored is not of this version. Then, but for n and x, the job as it is stored: its row
-- and its four counts.
--
-- Atomic because Redis runs a script alone. A repeated save finds its nonce.

local retention, stream, id, nonce, version, ended, data = whole(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local name = field('j', stream, id)

local function save()
  local row = call('HGET', H, name)
  local is, by, created, expires = '0', nil, format('%d', now), '0'
  if row then
    is, by, created, expires = match(row, '^1 (%d+) (%x+) %d (%d+) %d+ (%d+) ')
    if not is then error(BAD) end
  end
  if by == nonce then return '.' end
  if not row and version ~= '0' then return 'n' end
  if is ~= version then return 'c' end
  local until_ = ended == '1' and now + retention or 0
  call('HSET', H, name, format('1 %d %s %s %s %d %d ', whole(is) + 1, nonce, ended, created, now, until_) .. data)
  call('ZADD', Z, 0, field('w', stream, id))
  forgetAt('j', stream .. '\0' .. id, whole(expires), until_)
  return '.'
end

local answer = item(save)
if answer == 'n' or answer == 'x' then return {answer} end
local reply = {answer, call('HGET', H, name)}
for i, what in ipairs({'released', 'passed', 'failed', 'moved'}) do
  reply[2 + i] = call('HGET', H, field('J', stream, id) .. '\0' .. what) or '0'
end
return reply
