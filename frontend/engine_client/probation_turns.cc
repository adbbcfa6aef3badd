#include "frontend/engine_client/probation_turns.h"

#include <algorithm>
#include <utility>

#include "frontend/engine_client/engine_client.h"

namespace tandem {

ProbationTurns::ProbationTurns(std::vector<EngineClient*> clients)
    : clients_(std::move(clients)), own_(clients_.size()) {
  EngineClient* const first = clients_.front();
  for (size_t i = 0; i < clients_.size(); ++i) {
    clients_[i]->ShareEngines(
        {.reserve =
             [this, first, i](int engine_index) {
               first->RunOnShard([this, i, engine_index] { Reserve(i, engine_index); });
             },
         .release =
             [this, first, i](int, bool has_ended) {
               first->RunOnShard([this, i, has_ended] { Release(i, has_ended); });
             }});
  }
}

void ProbationTurns::Reserve(size_t asker, int engine_index) {
  auto begin_here = [this, asker, engine_index](std::function<void()> left) {
    own_[asker] = Begin(engine_index, std::move(left));
  };
  auto reserved = [client = clients_[asker]] {
    client->RunOnShard([client] { client->OnReserved(); });
  };
  if (!sharing_.reserve) return begin_here(std::move(reserved));
  sharing_.reserve(static_cast<int>(asker), engine_index, std::move(begin_here),
                   std::move(reserved));
}

void ProbationTurns::Release(size_t asker, bool has_ended) {
  End(own_[asker], has_ended);
  if (sharing_.release) sharing_.release(static_cast<int>(asker), has_ended);
}

int64_t ProbationTurns::Begin(int engine_index, std::function<void()> left) {
  turns_.push_back({++num_turns_, engine_index, std::move(left)});
  if (turns_.size() == 1) BeginFirst();
  return num_turns_;
}

void ProbationTurns::BeginFirst() {
  num_left_ = 0;
  const Turn& first = turns_.front();
  for (EngineClient* const client : clients_) {
    client->RunOnShard([this, client, turn = first.number, engine_index = first.engine_index] {
      client->LeaveEngine(engine_index);
      clients_.front()->RunOnShard([this, turn] { OnLeft(turn); });
    });
  }
}

void ProbationTurns::OnLeft(int64_t turn) {
  const bool is_over = turns_.empty() || turns_.front().number != turn;
  if (!is_over && ++num_left_ == clients_.size()) turns_.front().left();
}

void ProbationTurns::End(int64_t turn, bool has_ended) {
  const auto found = std::ranges::find(turns_, turn, &Turn::number);
  const bool was_first = found == turns_.begin();
  const int engine_index = found->engine_index;
  turns_.erase(found);
  if (!was_first) return;
  for (EngineClient* const client : clients_) {
    client->RunOnShard(
        [client, engine_index, has_ended] { client->ComeBack(engine_index, has_ended); });
  }
  if (!turns_.empty()) BeginFirst();
}

}  // namespace tandem
