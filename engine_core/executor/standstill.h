#pragma once

// Whether a process that runs steps on the host has come to a stand within one: the thread that
// runs the step waits for a word, and no other thread of the process does anything after which that
// word could change. A thread that computes, wants a CPU, or waits for a disk or for memory is
// never at a stand, nor is one that waits for such a thread. What other ranks are to do it waits
// for as well, but marks that (WaitMark), since only all ranks together show whether it comes.
// Looks are counted and time is not, so a process that was stopped, or a host that was suspended,
// is not at a stand.
//
// Thread: StandstillWatch is constructed on the thread that runs the steps; Look on another one of
// the process, which does nothing else then. A look costs two reads of files while the step
// computes, else two for each thread. Never fails: where the kernel shows less, nothing is ever at
// a stand.

#include <cstdint>
#include <span>

#include "common/thread_clock.h"
#include "common/thread_states.h"
#include "common/wait_mark.h"

namespace tandem {

// What one look has seen.
struct StandstillLook {
  int64_t step = 0;
  ThreadState loop = ThreadState::kRuns;  // of the thread that runs the step
  double loop_cpu_s = 0;
  uint64_t wait = 0;         // a WaitMark's
  bool others_wait = false;  // every other thread, for a word or an event
};

// Looks in a row that found what the look before had found.
struct Standstill {
  int num_looks = 0;          // at a stand
  bool awaits_ranks = false;  // the thread waits for what other ranks are to do

  int num_stuck_looks() const { return awaits_ranks ? 0 : num_looks; }
};

// Which rank, of all that run a step together, will not go on.
struct RanksVerdict {
  enum class Kind { kGoOn, kOneStands, kAllWait };  // kAllWait: for each other
  Kind kind = Kind::kGoOn;
  int rank = 0;  // of kOneStands
};
// By rank. most_looks: at which a rank is at a stand.
RanksVerdict JudgeRanks(std::span<const Standstill> ranks, int most_looks);

class StandstillRule {
 public:
  Standstill Add(const StandstillLook& look);

 private:
  StandstillLook last_;
  int num_looks_ = 0;
};

class StandstillWatch {
 public:
  // wait: where the thread marks its sleeps; null: there are no other ranks.
  explicit StandstillWatch(const WaitWord* wait = nullptr) : wait_(wait), loop_(OwnThread()) {}
  // step: what runs, another number for each.
  Standstill Look(int64_t step);

 private:
  bool OthersWait() const;

  const WaitWord* const wait_;
  const pid_t loop_;
  const ThreadClock loop_clock_;
  StandstillRule rule_;
};

}  // namespace tandem
