#pragma once

// What vLLM's engines that share a mixture's experts need of their frontend to form a group and to
// step together: ports at which they meet each other, and a coordinator. Engines subscribe at it,
// wait for its READY, which comes once all have subscribed, report the begin and end of waves
// (engine_waves.h) and are woken by it. Their reports of load are not used: outputs have it.
// Thread: the wire thread, Start before it. What cannot be decoded is logged and dropped.

#include <string>

#include "common/status.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/engine_waves.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {

class EngineGroup {
 public:
  // Binds at data_address, "tcp://host", and writes into the reply to each HELLO what engines need.
  // master: the address of the host of the first engine, where that listens for the others.
  Status Start(zmq::context_t* context, const std::string& data_address, const std::string& master,
               int num_engines, InitMessage* init);
  void AddTo(PollSet* poll);
  // Takes in what has arrived, and replies.
  void Receive();
  void Close();

 private:
  void ReceiveSubscriptions();
  void HandleReport();

  int num_engines_ = 0;
  int num_subscribed_ = 0;     // until the group was complete
  bool was_complete_ = false;  // one that comes later, as after a death, waits for nobody
  EngineWaves waves_;
  Socket words_;
  Socket reports_;
  ReceivedMessage received_;
  EngineCoreOutputs report_;
  EncodedMessage encoded_;
  ComplaintLimit complaints_;
};

}  // namespace tandem::wire
