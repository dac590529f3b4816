-- Says which alarms are the first in their windows. lib.lua stands in front of it and
-- says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV      four values for each alarm: stream, fingerprint, nonce in 32 hexadecimal
--           digits, window in microseconds
--
-- Returns a string with a letter for each: 1 it is the first, 0 it is not; x what is
-- stored is not of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated alarm finds its nonce.

local function alert(stream, print, nonce, window)
  local name, before = field('a', stream, print), 0
  local row = call('HGET', H, name)
  if row then
    local by, ends = match(row, '^1 (%x+) (%d+)$')
    if not by then error(BAD) end
    if by == nonce then return '1' end
    before = whole(ends)
    if before > now then return '0' end
  end
  call('HSET', H, name, '1 ' .. nonce .. format(' %d', now + whole(window)))
  forgetAt('a', stream .. '\0' .. print, before, now + whole(window))
  return '1'
end

local letters = {}
for i = 1, #ARGV, 4 do letters[#letters + 1] = item(alert, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
return table.concat(letters)
