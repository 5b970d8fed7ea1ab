SET 'table.local-time-zone' = 'UTC';
SET 'table.exec.state.ttl' = '1 h';
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '50 ms';
SET 'table.exec.mini-batch.size' = '5000';
SET 'table.optimizer.agg-phase-strategy' = 'TWO_PHASE';
CREATE TABLE source (id STRING, `user` STRING, ad STRING, kind STRING, `at` BIGINT,
    arrived TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', now AS PROCTIME()) WITH (
    'connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{kafka}',
    'properties.group.id' = '{name}', 'scan.startup.mode' = 'earliest-offset',
    'format' = 'json', 'json.ignore-parse-errors' = 'true');
CREATE TABLE booked_ads (ad STRING, campaign STRING, PRIMARY KEY (ad) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_booked_ads',
    'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '1000',
    'lookup.partial-cache.expire-after-write' = '1 h');
CREATE TABLE campaign_counts (campaign STRING, window_start TIMESTAMP(3), `views` BIGINT, clicks BIGINT,
    buys BIGINT, PRIMARY KEY (campaign, window_start) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_campaign_counts',
    'sink.buffer-flush.max-rows' = '5000', 'sink.buffer-flush.interval' = '50 ms');
CREATE TEMPORARY VIEW hits AS
    SELECT ad, LOWER(kind) AS kind, `at`, now FROM source
    WHERE id IS NOT NULL AND `user` IS NOT NULL AND ad IS NOT NULL AND `at` >= 0
        AND LOWER(kind) IN ('view', 'click', 'buy')
        AND TO_TIMESTAMP_LTZ(`at`, 3) <= arrived + INTERVAL '1' HOUR;
CREATE TEMPORARY VIEW enriched AS
    SELECT COALESCE(campaign, 'unknown') AS campaign, kind,
        CAST(TO_TIMESTAMP_LTZ(`at` - MOD(`at`, 10000), 3) AS TIMESTAMP(3)) AS window_start
    FROM hits LEFT JOIN booked_ads FOR SYSTEM_TIME AS OF hits.now ON hits.ad = booked_ads.ad;
INSERT INTO campaign_counts
    SELECT campaign, window_start, SUM(CASE WHEN kind = 'view' THEN 1 ELSE 0 END),
        SUM(CASE WHEN kind = 'click' THEN 1 ELSE 0 END), SUM(CASE WHEN kind = 'buy' THEN 1 ELSE 0 END)
    FROM enriched GROUP BY campaign, window_start;
