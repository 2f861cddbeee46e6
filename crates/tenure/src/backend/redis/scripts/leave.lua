-- Leaves the queue; if the name was granted meanwhile, gives it back. Of its range at most the start was seen.
--
-- ARGV  2: token
-- Returns  done

give_back(ARGV[2], 0)
return { now, 'done', unpublished }
