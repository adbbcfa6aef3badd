#include "engine_core/scheduler/client_outputs.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

// More would only hold memory: the wire thread returns a message within a step or two.
constexpr size_t kMaxSpares = 4;

// Resets the fields that the engine sets; keeps the capacity of strings and vectors.
void ResetRecord(wire::EngineCoreOutput* record) {
  record->new_token_ids.clear();
  record->new_logprobs.reset();
  record->new_prompt_logprobs.reset();
  record->finish_reason.reset();
  record->stop_reason = std::monostate();
  record->events.clear();
  record->kv_transfer_params.reset();
  record->trace_headers.reset();
  record->prefill_stats.reset();
  record->num_nans_in_logits = 0;
  record->spec_decode_metrics.reset();
  record->prompt_token_id_logprobs.reset();
  record->error.reset();
}

}  // namespace

wire::EngineCoreOutput& ClientOutputs::AddOutput(int32_t client_index,
                                                 const RequestId& request_id) {
  Client& client = At(client_index);
  if (client.num_outputs == 0 && client.message.outputs.empty() && !spares_.empty()) {
    client.message.outputs = std::move(spares_.back().outputs);
    spares_.pop_back();
  }
  auto& records = client.message.outputs;
  if (client.num_outputs == records.size()) records.emplace_back();
  wire::EngineCoreOutput& record = records[client.num_outputs++];
  ResetRecord(&record);
  record.request_id = request_id;
  return record;
}

wire::EngineCoreOutput ClientOutputs::TakeLast(int32_t client_index) {
  Client& client = At(client_index);
  CHECK_GT(client.num_outputs, size_t{0});
  return std::move(client.message.outputs[--client.num_outputs]);
}

void ClientOutputs::AddFinished(int32_t client_index, const RequestId& request_id) {
  At(client_index).message.finished_requests.push_back(request_id);
}

bool ClientOutputs::empty() const {
  return !stats_ && std::none_of(clients_.begin(), clients_.end(),
                                 [](const Client& client) { return client.active(); });
}

void ClientOutputs::Take(double now, std::vector<ClientMessage>* messages) {
  if (stats_) {
    const auto first = std::find_if(clients_.begin(), clients_.end(),
                                    [](const Client& client) { return client.active(); });
    Client& receiver = first == clients_.end() ? At(0) : *first;
    receiver.message.scheduler_stats = std::exchange(stats_, std::nullopt);
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    TakeFrom(&clients_[i], static_cast<int32_t>(i), now, messages);
  }
}

void ClientOutputs::TakeFrom(Client* client, int32_t client_index, double now,
                             std::vector<ClientMessage>* messages) {
  client->message.outputs.resize(std::exchange(client->num_outputs, 0));
  if (client->message.is_empty()) return;
  client->message.engine_index = engine_index_;
  client->message.timestamp = now;
  messages->push_back({client_index, std::exchange(client->message, {})});
}

void ClientOutputs::Recycle(wire::EngineCoreOutputs message) {
  if (spares_.size() < kMaxSpares && !message.outputs.empty())
    spares_.push_back(std::move(message));
}

ClientOutputs::Client& ClientOutputs::At(int32_t client_index) {
  const auto i = static_cast<size_t>(client_index);
  if (i >= clients_.size()) clients_.resize(i + 1);
  return clients_[i];
}

}  // namespace tandem
