-- Reads counts. lib.lua and checks.lua stand in front of it and say what is stored where.
--
-- KEYS      ch, cz of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   behind which series, [3] how many
-- then starts, in microseconds
--
-- Returns for each series its name, its earliest start, and for each start what the writers
-- have counted, with a space behind each.
--
-- A repeated call reads again.

local kind, after, most, reply = ARGV[1], ARGV[2], whole(ARGV[3]), {}
local all = field('c', kind, '')

local function count(list, start)
  local at, counted = list .. shifted(start), {}
  for i, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. at, '(' .. at .. 'g')) do
    local cell = readCell(kind, sub(member, #all + 1))
    counted[i] = cell and cell.n .. ' ' or ''
  end
  return table.concat(counted)
end

local ok, err = pcall(function()
  for _ = 1, most do
    local from = after == '' and '[' .. all or '(' .. all .. after .. '\1'
    local member = call('ZRANGEBYLEX', Z, from, '(' .. all .. '\255', 'LIMIT', 0, 1)[1]
    if not member then return end
    local nul = string.find(member, '\0', #all + 1, true)
    after = sub(member, #all + 1, nul - 1)
    reply[#reply + 1], reply[#reply + 2] = after, format('%d', whole(sub(member, nul + 1, nul + 16)) - 4e15)
    for i = 4, #ARGV do reply[#reply + 1] = count(sub(member, 1, nul), whole(ARGV[i])) end
  end
end)
if not ok and err == BAD then return redis.error_reply('PAWLROW not of this version') end
if not ok then error(err, 0) end
return reply
