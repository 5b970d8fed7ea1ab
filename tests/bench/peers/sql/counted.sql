CREATE TABLE source (id BIGINT, sent BIGINT, `user` STRING, hops INT) WITH (
    'connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{kafka}',
    'properties.group.id' = '{name}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE target (id BIGINT, sent BIGINT, `user` STRING, hops INT) WITH (
    'connector' = 'kafka', 'topic' = '{target}', 'properties.bootstrap.servers' = '{kafka}',
    'sink.delivery-guarantee' = 'at-least-once', 'properties.linger.ms' = '0', 'format' = 'json');
INSERT INTO target SELECT id, sent, `user`, hops + 1 FROM source;
