-- Stores observations. lib.lua and timeline.lua stand in front of it and say what is stored
-- where.
--
-- KEYS      th, tz of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   how far a time may lie ahead, [3] and behind, in microseconds
-- ARGV[4]   how many observations a subject may have
-- ARGV[5]   for how long a subject is kept after its last observation, in microseconds
-- then five values for each observation:
--   event; message; own; when it happened in microseconds, or *; and what is stored as it is:
--   the digest (43), five sizes, and the parts that have these sizes
--
-- Returns a string with a letter for each: 1 appended  2 repeated  3 differs  4 overflow;
-- x what is stored is not of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated observation finds its event.

local kind, ahead, behind, most, retention = ARGV[1], whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4]), whole(ARGV[5])

-- When it happened, as far as that can be believed. A time that no double can hold lies
-- farther away than any limit.
local function absurd(said)
  local at = said ~= NONE and whole(said)
  return not at or at > now + ahead or at < now - behind
end

local function append(event, message, own, said, rest)
  local row = call('HGET', H, field('e', kind, event))
  if row then return parse(row).digest == match(rest, '^%S+') and '2' or '3' end
  local s = readSubject(kind, subjectOf(message, own))
  if s.n >= most then
    if s.last ~= event then
      s.dropped, s.last = s.dropped + 1, event
      call('HSET', H, field('s', kind, s.name), subjectRow(s))
    end
    return '4'
  end
  local old = s.expires > 0 and expiryMember(s)
  s.n, s.expires = s.n + 1, now + retention
  local new = finders(kind, s.name, own, event, now)
  new[#new + 1] = expiryMember(s)
  add(new)
  call('HSET', H, field('s', kind, s.name), subjectRow(s), field('e', kind, event),
    format('1 %d %s %d ', now, said, absurd(said) and 1 or 0) .. rest)
  if old and old ~= expiryMember(s) then call('ZREM', Z, old) end
  return '1'
end

local letters = {}
for i = 6, #ARGV, 5 do
  letters[#letters + 1] = item(append, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
end
return table.concat(letters)
