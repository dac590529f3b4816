-- Lists entries, groups and jobs, and counts letters. lib.lua stands in front of it and
-- says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   what to list: e entries, u groups, j jobs of a stream; c streams
-- ARGV[2]   stream
-- ARGV[3]   behind which name; of entries, the lowest number (16 digits)
-- ARGV[4]   how many
-- ARGV[5]   of entries: how many to look at, [6] ID, [7] job: nothing for any
--
-- Returns
--   e   the number behind which there may be more, 0 if there are none; and for each entry
--       its number and its row
--   u   for each group the fingerprint and the row
--   j   for each job its ID, its row and its four counts
--   c   the time in microseconds; and for each stream its name, how many letters are in
--       each state, and when the first unresolved one was put, or 0
--
-- A repeated call reads again.

local what, stream, after, most = ARGV[1], ARGV[2], ARGV[3], whole(ARGV[4])
local reply = {}
local function add(value) reply[#reply + 1] = value end

local function names(prefix)
  local first = after == '' and '[' .. prefix or '(' .. prefix .. after
  local list = call('ZRANGEBYLEX', Z, first, '(' .. prefix .. '\127', 'LIMIT', 0, most)
  for i, member in ipairs(list) do list[i] = sub(member, #prefix + 1) end
  return list
end

local function entries(look, id, job)
  local prefix = field('m', stream, '')
  if id ~= '' then
    prefix = field('I', stream, id) .. '\0'
  elseif job ~= '' then
    prefix = field('O', stream, job) .. '\0'
  end
  local found, last = 0, '0'
  add('0')
  for i, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. prefix .. after, '(' .. prefix .. ':', 'LIMIT', 0, look + 1)) do
    if i > look or found == most then
      reply[1] = last
      break
    end
    last = sub(member, -16)
    local row = call('HGET', H, field('e', stream, last)) or ''
    if job == '' or match(row, '^1 %d+ %d+ %d+ %x+ %S+ %S+ (%S+) ') == job then
      found = found + 1
      add(last)
      add(row)
    end
  end
end

local function streams()
  add(format('%d', now))
  for _, name in ipairs(names('y')) do
    add(name)
    for state = 1, 5 do add(call('HGET', H, field('c', name, state)) or '0') end
    local oldest
    for state = 1, 2 do
      local prefix = field('p', name, state)
      local member = call('ZRANGEBYLEX', Z, '[' .. prefix, '(' .. prefix .. ':', 'LIMIT', 0, 1)[1]
      local x = member and sub(member, -16)
      if x and (not oldest or x < oldest) then oldest = x end
    end
    local r = oldest and readLetter(name, oldest)
    add(r and format('%d', r.put) or '0')
  end
end

local ok, err = pcall(function()
  if what == 'e' then
    entries(whole(ARGV[5]), ARGV[6], ARGV[7])
  elseif what == 'u' then
    for _, print in ipairs(names(field('v', stream, ''))) do
      add(print)
      add(call('HGET', H, field('u', stream, print)) or '')
    end
  elseif what == 'j' then
    for _, id in ipairs(names(field('w', stream, ''))) do
      add(id)
      add(call('HGET', H, field('j', stream, id)) or '')
      for _, count in ipairs({'released', 'passed', 'failed', 'moved'}) do add(call('HGET', H, field('J', stream, id) .. '\0' .. count) or '0') end
    end
  else
    streams()
  end
end)
if not ok and err == BAD then return redis.error_reply('PAWLROW not of this version') end
if not ok then error(err, 0) end
return reply
