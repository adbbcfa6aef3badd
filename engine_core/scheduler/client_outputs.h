#pragma once

// Gathers a step's records and notices, one EngineCoreOutputs per frontend (client). Thread: engine
// loop. A message that comes back through Recycle is overwritten in place, so that a steady decode
// step allocates nothing.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// A message and the output socket it goes to.
struct ClientMessage {
  int32_t client_index = 0;
  wire::EngineCoreOutputs outputs;
};

class ClientOutputs {
 public:
  explicit ClientOutputs(int32_t engine_index = 0) : engine_index_(engine_index) {}

  // An empty record of this request, to be filled before the next call.
  wire::EngineCoreOutput& AddOutput(int32_t client_index, const RequestId& request_id);
  // Takes back the record that was added last. REQUIRES: there is one.
  wire::EngineCoreOutput TakeLast(int32_t client_index);
  void AddFinished(int32_t client_index, const RequestId& request_id);
  // Whether Take would make no message.
  bool empty() const;
  // For the first client that gets a message, else for client 0.
  void SetStats(wire::SchedulerStats stats) { stats_ = std::move(stats); }

  // Appends the messages to *messages, stamped with `now` (monotonic), and begins anew. A client
  // for which there is nothing gets none.
  void Take(double now, std::vector<ClientMessage>* messages);
  // Takes back a message whose content is no longer needed, for its memory.
  void Recycle(wire::EngineCoreOutputs message);

 private:
  struct Client {
    wire::EngineCoreOutputs message;
    size_t num_outputs = 0;  // records of message.outputs that are this step's
    bool active() const { return num_outputs > 0 || !message.finished_requests.empty(); }
  };
  Client& At(int32_t client_index);
  void TakeFrom(Client* client, int32_t client_index, double now,
                std::vector<ClientMessage>* messages);

  int32_t engine_index_;
  std::vector<Client> clients_;  // by client_index
  std::optional<wire::SchedulerStats> stats_;
  std::vector<wire::EngineCoreOutputs> spares_;
};

}  // namespace tandem
