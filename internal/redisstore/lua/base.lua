-- Constants, put before every script. Redis runs the whole text of a script in each call,
-- so a function defined here would cost time even in scripts that do not use it.
--
-- Numbers. Lua computes in doubles, which are exact up to 2^53, and prints large ones with
-- an exponent: every number that leaves a script as text goes through int(). Times are
-- microseconds since the epoch; 2^53 of them last until the year 2255.

local MAX = 9007199254740992 -- 2^53: the largest number of units
local TOP = 9007199254740991 -- 2^53 - 1: the latest time
local SLACK = 1000 -- ms that a key is kept after it is needed
local FOREVER = 6307200000000 -- ms, 200 years: the longest TTL

local format, match, find, byte, sub = string.format, string.match, string.find, string.byte, string.sub
local call = redis.call
