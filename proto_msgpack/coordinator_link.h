#pragma once

// An engine's link to the data-parallel coordinator that a frontend names: vLLM's reports to all of
// its frontend's clients what each engine runs and has waiting. It begins once every engine has
// subscribed. Its waves keep the steps of a mixture's engines in lockstep; our engines
// share nothing, so they start none and heed none. Thread: the wire thread.

#include <string>

#include "common/status.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/schema.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {

class CoordinatorLink {
 public:
  // Subscribes. The names are the engine's side's: input: where the coordinator publishes, output:
  // where reports go.
  Status Start(zmq::context_t* context, const std::string& input, const std::string& output);
  bool is_open() const { return reports_.is_open(); }
  void AddTo(PollSet* poll) { poll->Add(words_); }
  // Takes in what has arrived; none of it has an effect.
  void Receive();
  // Reports the numbers of requests if they have changed.
  void Report(int engine_index, const SchedulerStats& stats, double timestamp);
  void Close();

 private:
  Socket words_;
  Socket reports_;
  SchedulerStats reported_;
  ReceivedMessage received_;
  EncodedMessage encoded_;
};

}  // namespace tandem::wire
