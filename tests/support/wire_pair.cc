#include "tests/support/wire_pair.h"

namespace tandem::wire {

FrontendClientCallbacks CallbacksInto(Inbox<ClientEvent>* inbox) {
  return {.on_outputs =
              [inbox](EngineCoreOutputs outputs) {
                ClientEvent event;
                event.outputs = std::move(outputs);
                inbox->box.Push(std::move(event));
              },
          .on_engine_ready =
              [inbox](int engine_index, const EngineCoreReadyResponse& response) {
                ClientEvent event;
                event.kind = ClientEvent::Kind::kReady;
                event.engine_index = engine_index;
                event.response = response;
                inbox->box.Push(std::move(event));
              },
          .on_engine_lost =
              [inbox](int engine_index, const Status& why) {
                ClientEvent event;
                event.kind = ClientEvent::Kind::kLost;
                event.engine_index = engine_index;
                event.why = why;
                inbox->box.Push(std::move(event));
              }};
}

FrontendEndpointOptions FrontendIn(const TempFolder& folder, int num_engines, int num_clients) {
  FrontendEndpointOptions options;
  options.data_address = "ipc://" + folder.path() + "/wire";
  options.handshake_address = options.data_address + "/handshake";
  options.num_engines = num_engines;
  options.num_clients = num_clients;
  return options;
}

EngineEndpointOptions EngineIn(const TempFolder& folder, int engine_index) {
  EngineEndpointOptions options;
  options.handshake_address = "ipc://" + folder.path() + "/wire/handshake";
  options.engine_index = engine_index;
  return options;
}

EngineCoreReadyResponse TestReadyResponse(int engine_index) {
  EngineCoreReadyResponse response;
  response.max_model_len = 4096 - engine_index;
  response.num_gpu_blocks = 100;
  response.block_size = 16;
  response.data_parallel_rank = engine_index;
  response.max_num_seqs = 8;
  response.max_num_batched_tokens = 1024;
  response.instance_id = "test";
  return response;
}

}  // namespace tandem::wire
