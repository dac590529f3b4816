-- The checks: what the scripts for findings and counts share.
--
-- All of a kind lies in one partition. A finding's name is its check, NUL and its subject.
--   H   f <kind> NUL <name>            a finding: all but its log
--       l <kind> NUL <name>            its log
--       u <kind> NUL <check>           how many are suspected, open and acknowledged
--       t <kind> NUL <cell>            what a writer has counted. A cell is the series, NUL, its
--                                      start, moved so that it is positive, and the writer
--   Z   f <kind> NUL <name>                        all findings
--       u <kind> NUL <name>                        unresolved ones
--       d <kind> NUL <check> NUL <due><subject>    unresolved ones, by when they are looked at
--       o <kind> NUL <check> NUL <opened><subject> those that are open or acknowledged
--       n <kind> NUL <check>                       checks that have unresolved ones
--       c <kind> NUL <cell>                        cells
--       e <time><kind> NUL <name>                  which findings may be forgotten, and when
--       x <time><kind> NUL <cell>                  and which cells

local SUSPECTED, OPEN, ACKNOWLEDGED, RESOLVED = '1', '2', '3', '4'

local function field(letter, kind, name) return letter .. kind .. '\0' .. name end
local function shifted(start) return time(start + 4e15) end

local function isUnresolved(f) return f.state ~= RESOLVED end
local function hasExpired(f) return f.expires > 0 and f.expires <= now end

local function dueMember(f) return field('d', f.kind, f.check) .. '\0' .. time(f.due) .. f.subject end
local function openMember(f) return field('o', f.kind, f.check) .. '\0' .. time(f.opened) .. f.subject end
local function expiryMember(f) return 'e' .. time(f.expires) .. f.kind .. '\0' .. f.name end

local function members(f)
  local list = {field('f', f.kind, f.name)}
  local function insert(member) list[#list + 1] = member end
  if isUnresolved(f) then
    insert(field('u', f.kind, f.name))
    if f.due > 0 then insert(dueMember(f)) end
    if f.state ~= SUSPECTED then insert(openMember(f)) end
  end
  if f.expires > 0 then insert(expiryMember(f)) end
  return list
end

local FINDING = '^1 (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%x+) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$'

local function parse(row, kind, check, subject)
  local f, times, first, last, opened, due, expires, entries, dropped, account, detail, by, rest =
    {kind = kind, check = check, subject = subject, name = check .. '\0' .. subject, row = row}
  f.state, f.version, f.count, times, first, last, opened, due, expires, f.nonce, f.outcome, entries, dropped, account, detail, by, rest =
    match(row, FINDING)
  if not f.state then error(BAD) end
  f.times, f.first, f.last, f.opened, f.due, f.expires = whole(times), whole(first), whole(last), whole(opened), whole(due), whole(expires)
  f.entries, f.dropped, account, detail, by = whole(entries), whole(dropped), whole(account), whole(detail), whole(by)
  f.account, f.detail, f.by = sub(rest, 1, account), sub(rest, account + 1, account + detail), sub(rest, account + detail + 1, account + detail + by)
  f.note = sub(rest, account + detail + by + 1)
  return f
end

-- Reads a finding that may be changed.
local function read(kind, check, subject)
  local row = call('HGET', H, field('f', kind, check .. '\0' .. subject))
  if not row then return nil end
  local f = parse(row, kind, check, subject)
  f.members, f.was = members(f), f.state
  return f
end

local function rowOf(f)
  return format('1 %s %s %s %d %d %d %d %d %d %s %s %d %d %d %d %d ', f.state, f.version, f.count, f.times, f.first, f.last, f.opened, f.due,
    f.expires, f.nonce, f.outcome, f.entries, f.dropped, #f.account, #f.detail, #f.by) .. f.account .. f.detail .. f.by .. f.note
end

-- How many findings of a check are suspected, open and acknowledged.
local function unresolved(kind, check)
  local row = call('HGET', H, field('u', kind, check))
  if not row then return {0, 0, 0} end
  local s, o, a = match(row, '^1 (%d+) (%d+) (%d+)$')
  if not s then error(BAD) end
  return {whole(s), whole(o), whole(a)}
end

-- The counts of a check after a change of state, or nil if that changes nothing.
local function recount(f, from, to)
  if from == to then return nil end
  local counts = unresolved(f.kind, f.check)
  local function change(state, n)
    local i = state and whole(state) or 4
    if i < 4 then counts[i] = math.max(counts[i] + n, 0) end
  end
  change(from, -1)
  change(to, 1)
  return counts
end

local function writeCounts(f, counts)
  if not counts then return end
  if counts[1] + counts[2] + counts[3] > 0 then
    call('HSET', H, field('u', f.kind, f.check), format('1 %d %d %d', unpack(counts)))
    return
  end
  call('HDEL', H, field('u', f.kind, f.check))
  call('ZREM', Z, field('n', f.kind, f.check))
end

-- Writes a finding. A new one has no members yet.
local function save(f)
  local is, counts = members(f), recount(f, f.was, f.state) -- this fails before anything is written
  local old = f.members or {}
  if f.members then evenIfFull() end
  local new = without(is, old)
  if isUnresolved(f) then new[#new + 1] = field('n', f.kind, f.check) end
  add(new)
  f.row = rowOf(f)
  if f.log then
    call('HSET', H, field('f', f.kind, f.name), f.row, field('l', f.kind, f.name), f.log)
  else
    call('HSET', H, field('f', f.kind, f.name), f.row)
  end
  drop(without(old, is))
  writeCounts(f, counts)
end

local function remove(f)
  local counts = recount(f, f.was, nil)
  call('HDEL', H, field('f', f.kind, f.name), field('l', f.kind, f.name))
  drop(f.members)
  writeCounts(f, counts)
end

-- What a caller gets of a finding: its check, its subject and its rows. Returns their size.
local function tell(f, into)
  local n, log = #into, f.log or call('HGET', H, field('l', f.kind, f.name)) or ''
  into[n + 1], into[n + 2], into[n + 3], into[n + 4] = f.check, f.subject, f.row, log
  return #f.row + #log
end

-- A cell: until when it is kept, and what was counted, as text.
local function readCell(kind, name)
  local row = call('HGET', H, field('t', kind, name))
  if not row then return nil end
  local expires, n = match(row, '^1 (%d+) (%d+)$')
  if not expires then error(BAD) end
  return {expires = whole(expires), n = n}
end
