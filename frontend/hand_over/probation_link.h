#pragma once

// How frontends that serve at once, while one of them retires, take turns in running a request
// alone on an engine (frontend/engine_client/probation_turns.h). Each listens at a socket in the
// folder where they meet their engines, which only this user may enter. The one that wants an
// engine connects:
//
//   leave (engine index)   →  the other one's requests leave the engine, after turns that are there
//                          ←  left
//
// and has the engine until it closes the connection, or ends. It asks one after another in the
// order of their process ids, among which its own turns have their place: so of two that ask at
// once one waits for the other.
// Thread: one shard's. Owns the sockets. Failure: nobody waits longer than Options::patience_s, for
// another one to leave or until it may come back. After that requests of both may be on the engine.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/net/net.h"

namespace tandem {

// The sockets' name in the folder.
inline constexpr std::string_view kTurnsName = "turns";

class ProbationLink {
 public:
  struct Options {
    int num_engines = 1;
    // Below the time for which requests wait for an engine (ResumeLimits), which they do meanwhile.
    double patience_s = 30;
    // How long others stay away from an engine that has ended: if they came back before they have
    // noticed that, its end would count against their requests.
    double notice_s = 1;
  };
  using Callback = std::function<void()>;
  struct Calls {
    // The sockets of the other frontends, whose names end in their process ids.
    std::function<std::vector<std::string>()> others;
    // A turn of another one: `left` is to be called once the requests here have left the engine.
    // Returns the turn's number.
    std::function<int64_t(int engine_index, Callback left)> begin;
    // It is over. May come before `left`.
    std::function<void(int64_t turn)> end;
  };

  ProbationLink(Shard* shard, Options options, Calls calls)
      : shard_(shard), options_(options), calls_(std::move(calls)) {}
  ~ProbationLink();
  ProbationLink(const ProbationLink&) = delete;

  Status Listen(const std::string& path);
  // Calls `reserved` once all have left the engine, which stay away until Release. begin_here: in
  // the place of this process, and calls what it is given. asker: has one turn at a time.
  void Reserve(int asker, int engine_index, std::function<void(Callback left)> begin_here,
               Callback reserved);
  // has_ended: so has the engine.
  void Release(int asker, bool has_ended);

 private:
  using Sockets = std::vector<std::unique_ptr<Socket>>;
  struct Peer {  // one that asks here
    std::unique_ptr<Socket> socket;
    std::optional<int64_t> turn = {};
  };
  struct Reservation {
    int engine_index = 0;
    std::function<void(Callback left)> begin_here;
    Callback reserved;
    std::vector<std::string> paths = {};  // whom to ask, the next one last
    int64_t question = 0;                 // that has no reply yet
    Sockets sockets = {};
  };

  void WatchListener();
  void Accept();
  void WatchPeer(int64_t peer_id);
  // False: the peer is gone.
  bool ReadPeer(int64_t peer_id);
  void OnLeft(int64_t peer_id);
  void Drop(int64_t peer_id);
  void AskNext(int asker);
  bool AskAt(int asker, const std::string& path);
  void OnReply(int asker, int64_t question);

  Shard* const shard_;
  const Options options_;
  const Calls calls_;
  std::string path_;
  std::unique_ptr<Socket> listener_;
  int64_t num_peers_ = 0;  // ever
  std::map<int64_t, Peer> peers_;
  int64_t num_questions_ = 0;                // ever
  std::map<int, Reservation> reservations_;  // by asker
  std::deque<Sockets> kept_;                 // of reservations that are over, for notice_s
};

}  // namespace tandem
