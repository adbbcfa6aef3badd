#pragma once

// How a frontend hands over to the next one while both run: packets over a UNIX socket in the
// folder where they meet their engines, which only this user may enter.
//
//   the next                          the one that serves
//   take over (number of engines)  →
//                                  ←  estate: the folder's lock and the listening socket, shared;
//                                     the adapters, a file in memory, if there are any
//   bound (its own address)        →  introduces its engines to that address
//   serving                        →  retires
//                                  ←  counts: of its metrics, a file in memory
//
// While it ends the one before has more to count: it sends that to the one that serves then.
//
// In place of a reply, and at any time until it has retired, the one that serves may refuse. When
// either ends before "serving" the other one serves: the next with what it has inherited, the one
// before with what it has never given up.
// Thread: HandOverOffer and LateCounts a shard's; HandOverClaim::Make, which waits, any, then a
// shard's. Failure: Status, with a reason that an operator can read.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "common/unique_fd.h"
#include "frontend/http/listening_socket.h"
#include "frontend/net/net.h"

namespace tandem {

// The links in the folder that lead to the offer, and to where counts are taken.
inline constexpr std::string_view kHandOverName = "hand-over";
inline constexpr std::string_view kLateCountsName = "counts";

struct Estate {
  UniqueFd folder_lock;
  ListeningSocket listener;
  // What AdapterDirectory shares; empty: nothing was ever loaded, or the one before knows no
  // adapters.
  std::string adapters;
};

// The side of the frontend that serves. One successor at a time.
class HandOverOffer {
 public:
  struct Calls {
    // Or why nobody may take over now.
    std::function<StatusOr<Estate>(int num_engines)> share;
    std::function<void(const std::string& own_address)> introduce;
    // Returns what it has counted.
    std::function<std::string(pid_t successor)> retire;
    // The successor ended before it served.
    std::function<void()> take_back;
  };

  HandOverOffer(Shard* shard, Calls calls);

  Status Listen(const std::string& path);
  // From now on nobody takes over; a successor that is there gets the reason.
  void Close(std::string_view why);
  bool has_successor() const { return successor_ != nullptr; }

 private:
  void WatchListener();
  void Accept();
  void WatchSuccessor();
  void OnReadable();
  void Handle(std::string_view packet);
  void HandleTakeOver(std::string_view num_engines);
  void Refuse(std::string_view why);

  Shard* const shard_;
  const Calls calls_;
  std::string path_;
  std::unique_ptr<Socket> listener_;
  std::unique_ptr<Socket> successor_;
  pid_t successor_pid_ = 0;
  bool is_introduced_ = false;
};

// The side of the next one.
class HandOverClaim {
 public:
  // Asks the frontend that listens at the path; nullopt: there is none. DEADLINE_EXCEEDED: it does
  // not respond. FAILED_PRECONDITION: it refuses.
  static StatusOr<std::optional<HandOverClaim>> Make(const std::string& path, int num_engines);

  Estate& estate() { return estate_; }
  Status SendBound(std::string_view own_address) const;
  Status SendServing() const;
  // Calls on_end once, on the shard: with what the other one has counted, nothing if it has ended
  // without, or its refusal. Not after this is destroyed.
  void WatchEnd(Shard* shard, std::function<void(const StatusOr<std::string>&)> on_end);

 private:
  int fd() const { return watched_ ? watched_->fd() : connection_.get(); }

  UniqueFd connection_;
  Estate estate_;
  std::unique_ptr<Socket> watched_;  // once it is watched, the connection
};

// Takes what frontends count after they have retired.
class LateCounts {
 public:
  LateCounts(Shard* shard, std::function<void(const std::string&)> on_counts);
  ~LateCounts();

  Status Listen(const std::string& path);
  // Calls on_counts for all that have arrived.
  void Take();
  static Status Send(const std::string& path, std::string_view counts);

 private:
  void Watch();

  Shard* const shard_;
  const std::function<void(const std::string&)> on_counts_;
  std::string path_;
  std::unique_ptr<Socket> socket_;
};

}  // namespace tandem
