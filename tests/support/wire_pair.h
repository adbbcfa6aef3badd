#pragma once

// What tests of the two endpoints share: mailboxes that tests wait for with a limit, and options
// for sockets in a folder of the test. Thread: the test's own.

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mailbox.h"
#include "proto_msgpack/wire_endpoint.h"
#include "tests/support/files/temp_folder.h"

namespace tandem::wire {

// Takes one item at a time out of a mailbox.
template <class T>
class Inbox {
 public:
  // The next item, or nullopt after ten seconds without one.
  std::optional<T> Next() {
    if (taken_.empty()) {
      if (!box.WaitFor(std::chrono::seconds(10))) return std::nullopt;
      std::vector<T> drained;
      box.Drain(&drained);
      for (T& item : drained) taken_.push_back(std::move(item));
    }
    if (taken_.empty()) return std::nullopt;
    T item = std::move(taken_.front());
    taken_.pop_front();
    return item;
  }

  // Pushes into the box. The inbox must outlive it.
  std::function<void(T)> Pusher() {
    return [this](T item) { box.Push(std::move(item)); };
  }

  Mailbox<T> box;

 private:
  std::deque<T> taken_;
};

// The callbacks of a frontend client, as values.
struct ClientEvent {
  enum class Kind { kOutputs, kReady, kLost } kind = Kind::kOutputs;
  EngineCoreOutputs outputs;
  int engine_index = -1;
  EngineCoreReadyResponse response;
  Status why;
};
FrontendClientCallbacks CallbacksInto(Inbox<ClientEvent>* inbox);

FrontendEndpointOptions FrontendIn(const TempFolder& folder, int num_engines = 1,
                                   int num_clients = 1);
EngineEndpointOptions EngineIn(const TempFolder& folder, int engine_index = 0);
EngineCoreReadyResponse TestReadyResponse(int engine_index = 0);

}  // namespace tandem::wire
