-- Reads observations. lib.lua and timeline.lua stand in front of it and say what is stored
-- where.
--
-- KEYS      th, tz of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   event: what it is about is answered, and nothing else
-- ARGV[3]   how many values are enough, [4] and how many bytes
-- then two values for each list:
--   its beginning: i and a subject, or j and an own, each with the kind; behind what in it
--
-- With an event returns its message and its own, or nothing. Otherwise how many lists were
-- read to their ends and, of the list behind them, how far; then for each list, that one
-- included, how many values follow; and the values: for each observation its event and its
-- row; of a list i first how many were dropped; of a list j messages instead.
--
-- A repeated call reads again.

local kind, enough, bytes, reply = ARGV[1], whole(ARGV[3]), whole(ARGV[4]), {0, ''}
local values, size = 0, 0

local function put(value)
  reply[#reply + 1] = value
  values, size = values + 1, size + #value
end

-- Reads the observations of a subject. Returns how far, if that is not all.
local function observations(list, after)
  local s = readSubject(kind, sub(list, #kind + 3, -2))
  put(format('%d', s.dropped))
  while true do
    local page = call('ZRANGEBYLEX', Z, after == '' and '[' .. list or '(' .. list .. after, '(' .. list .. ':', 'LIMIT', 0, 100)
    for _, member in ipairs(page) do
      after = sub(member, #list + 1)
      local event = sub(after, 17)
      local row = call('HGET', H, field('e', kind, event))
      local o = row and parse(row)
      -- not what a part of a step has left behind
      if o and subjectOf(o.message, o.own) == s.name and time(whole(o.received)) == sub(after, 1, 16) then
        put(event)
        put(row)
        if values >= enough or size >= bytes then return after end
      end
    end
    if #page < 100 then return nil end
  end
end

-- Reads which messages name an own. Returns the last of them, if that is not all.
local function messages(list, after)
  local from, own = after == '' and '[' .. list or '(' .. list .. after .. '\1', sub(list, #kind + 3, -2)
  while true do
    local member = call('ZRANGEBYLEX', Z, from, '(' .. list .. '\255', 'LIMIT', 0, 1)[1]
    if not member then return nil end
    local nul = string.find(member, '\0', #list + 1, true)
    local message, row = sub(member, #list + 1, nul - 1), call('HGET', H, field('e', kind, sub(member, nul + 17)))
    local o = row and parse(row)
    if o and o.own == own and o.message == message then
      put(message)
      if values >= enough or size >= bytes then return message end
      from = '(' .. list .. message .. '\1'
    else -- a part of a step has left it behind
      from = '(' .. member
    end
  end
end

local function lists()
  for i = 5, #ARGV, 2 do
    local at, list = #reply + 1, ARGV[i]
    reply[at] = '0'
    local stopped = (sub(list, 1, 1) == 'i' and observations or messages)(list, ARGV[i + 1])
    reply[at] = format('%d', #reply - at)
    if stopped then
      reply[2] = stopped
      return
    end
    reply[1] = reply[1] + 1
    if values >= enough or size >= bytes then return end
  end
end

local ok, err = pcall(function()
  if ARGV[2] == '' then
    lists()
    return
  end
  local row = call('HGET', H, field('e', kind, ARGV[2]))
  local o = row and parse(row)
  reply = o and {o.message, o.own} or {}
end)
if not ok and err == BAD then return redis.error_reply('PAWLROW not of this version') end
if not ok then error(err, 0) end
return reply
