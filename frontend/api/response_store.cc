#include "frontend/api/response_store.h"

#include <functional>
#include <utility>

#include "frontend/net/ask_shard.h"

namespace tandem {

void ResponseStore::Put(std::string id, StoredResponse response) {
  owner_->Post([this, id = std::move(id), response = std::move(response)]() mutable {
    table_.Put(id, std::move(response));
    Report();
  });
}

void ResponseStore::Update(std::string id, std::string body) {
  owner_->Post([this, id = std::move(id), body = std::move(body)]() mutable {
    table_.Update(id, std::move(body));
    Report();
  });
}

void ResponseStore::Append(std::string id, std::string events) {
  owner_->Post([this, id = std::move(id), events = std::move(events)] {
    table_.Append(id, events);
    Report();
  });
}

void ResponseStore::End(std::string id, std::string body) {
  owner_->Post([this, id = std::move(id), body = std::move(body)]() mutable {
    table_.End(id, std::move(body));
    Report();
  });
}

void ResponseStore::Report() {
  metrics_->stored_responses.Set(static_cast<double>(table_.num_entries()));
  metrics_->stored_response_bytes.Set(static_cast<double>(table_.num_bytes()));
}

Awaitable<StatusOr<StoredResponsePtr>> ResponseStore::Find(std::string id) {
  using Found = StatusOr<StoredResponsePtr>;
  std::function<void(std::function<void(Found)>)> ask =
      [this, id = std::move(id)](const std::function<void(Found)>& reply) {
        reply(table_.Find(id));
      };
  return AskShard<Found>(owner_, std::move(ask));
}

Awaitable<StatusOr<StoredResponsePtr>> ResponseStore::Cancel(std::string id) {
  using Ended = StatusOr<StoredResponsePtr>;
  std::function<void(std::function<void(Ended)>)> ask =
      [this, id = std::move(id)](std::function<void(Ended)> reply) {
        table_.Cancel(id, std::move(reply));
      };
  return AskShard<Ended>(owner_, std::move(ask));
}

Awaitable<Status> ResponseStore::Remove(std::string id) {
  std::function<void(std::function<void(Status)>)> ask =
      [this, id = std::move(id)](const std::function<void(Status)>& reply) {
        reply(table_.Remove(id));
        Report();
      };
  return AskShard<Status>(owner_, std::move(ask));
}

Awaitable<Status> ResponseStore::Begin(std::string id, StoredResponse response, bool keeps_events,
                                       StoredResponses::Stop stop) {
  std::function<void(std::function<void(Status)>)> ask =
      [this, id = std::move(id), response = std::move(response), keeps_events,
       stop = std::move(stop)](const std::function<void(Status)>& reply) {
        reply(table_.Begin(id, response, keeps_events, stop));
        Report();
      };
  return AskShard<Status>(owner_, std::move(ask));
}

Awaitable<Status> ResponseStore::Follow(std::string id, int64_t after,
                                        const std::shared_ptr<StoredEvents>& events) {
  StoredResponses::Follower follower = [home = Shard::Current(),
                                        weak = std::weak_ptr<StoredEvents>(events)](
                                           std::string_view text, bool is_end) {
    if (weak.expired()) return false;
    home->Post([weak, text = std::string(text), is_end] {
      const auto reader = weak.lock();
      if (reader == nullptr) return;
      reader->text += text;
      reader->is_end |= is_end;
      reader->arrived.Set();
    });
    return true;
  };
  std::function<void(std::function<void(Status)>)> ask =
      [this, id = std::move(id), after, follower = std::move(follower)](
          const std::function<void(Status)>& reply) { reply(table_.Follow(id, after, follower)); };
  return AskShard<Status>(owner_, std::move(ask));
}

}  // namespace tandem
