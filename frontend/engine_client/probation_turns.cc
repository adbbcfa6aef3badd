#include "frontend/engine_client/probation_turns.h"

#include <utility>

#include "frontend/engine_client/engine_client.h"

namespace tandem {

ProbationTurns::ProbationTurns(std::vector<EngineClient*> clients) : clients_(std::move(clients)) {
  if (clients_.size() < 2) return;
  EngineClient* const first = clients_.front();
  for (EngineClient* const client : clients_) {
    client->ShareEngines({.reserve =
                              [this, first, client](int engine_index) {
                                first->RunOnShard([this, turn = Turn{client, engine_index}] {
                                  turns_.push_back(turn);
                                  if (turns_.size() == 1) Begin(turn);
                                });
                              },
                          .release = [this, first](int) { first->RunOnShard([this] { End(); }); }});
  }
}

void ProbationTurns::Begin(const Turn& turn) {
  num_left_ = 0;
  for (EngineClient* const other : clients_) {
    if (other == turn.client) continue;
    other->RunOnShard([this, other, engine_index = turn.engine_index] {
      other->LeaveEngine(engine_index);
      clients_.front()->RunOnShard([this] { OnLeft(); });
    });
  }
}

void ProbationTurns::OnLeft() {
  if (++num_left_ < clients_.size() - 1) return;
  EngineClient* const client = turns_.front().client;
  client->RunOnShard([client] { client->OnReserved(); });
}

void ProbationTurns::End() {
  const Turn ended = turns_.front();
  turns_.pop_front();
  for (EngineClient* const other : clients_) {
    if (other == ended.client) continue;
    other->RunOnShard(
        [other, engine_index = ended.engine_index] { other->ComeBack(engine_index); });
  }
  if (!turns_.empty()) Begin(turns_.front());
}

}  // namespace tandem
