SET 'table.local-time-zone' = 'UTC';
CREATE TABLE events (kind STRING, id BIGINT, name STRING, city STRING, state STRING, seller BIGINT,
    category INT, expires BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, `at` BIGINT,
    part INT METADATA FROM 'partition' VIRTUAL,
    place BIGINT METADATA FROM 'offset' VIRTUAL, happened AS TO_TIMESTAMP_LTZ(`at`, 3),
    WATERMARK FOR happened AS happened - INTERVAL '30' SECOND) WITH (
    'connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{kafka}',
    'properties.group.id' = '{name}', 'scan.startup.mode' = 'earliest-offset',
    'format' = 'json', 'json.ignore-parse-errors' = 'true');
CREATE TABLE q0 (part INT, place BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, `at` TIMESTAMP(3),
    PRIMARY KEY (part, place) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q0_bids',
    'sink.buffer-flush.max-rows' = '5000', 'sink.buffer-flush.interval' = '50 ms');
CREATE TABLE q1 (part INT, place BIGINT, auction BIGINT, bidder BIGINT, price DECIMAL(23, 3),
    `at` TIMESTAMP(3), PRIMARY KEY (part, place) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q1_bids_in_euros',
    'sink.buffer-flush.max-rows' = '5000', 'sink.buffer-flush.interval' = '50 ms');
CREATE TABLE q2 (part INT, place BIGINT, auction BIGINT, price BIGINT,
    PRIMARY KEY (part, place) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q2_bids_on_some_auctions',
    'sink.buffer-flush.max-rows' = '5000', 'sink.buffer-flush.interval' = '50 ms');
CREATE TABLE q3 (auction BIGINT, name STRING, city STRING, state STRING,
    PRIMARY KEY (auction) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q3_local_items');
CREATE TABLE q4 (category INT, auctions BIGINT, average DOUBLE, PRIMARY KEY (category) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q4_prices_by_category',
    'sink.buffer-flush.max-rows' = '5000');
CREATE TABLE q5 (since TIMESTAMP(3), auction BIGINT, bids BIGINT,
    PRIMARY KEY (since, auction) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q5_hot_auctions');
CREATE TABLE q6 (seller BIGINT, average DOUBLE, PRIMARY KEY (seller) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q6_prices_by_seller',
    'sink.buffer-flush.max-rows' = '5000');
CREATE TABLE q7 (since TIMESTAMP(3), auction BIGINT, bidder BIGINT, price BIGINT, `at` TIMESTAMP(3),
    PRIMARY KEY (since) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q7_highest_bids');
CREATE TABLE q8 (person BIGINT, since TIMESTAMP(3), name STRING,
    PRIMARY KEY (person, since) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'flink_q8_new_sellers');
CREATE TEMPORARY VIEW bids AS
    SELECT part, place, auction, bidder, price, `at`, happened, CAST(happened AS TIMESTAMP(3)) AS utc
    FROM events WHERE kind = 'bid';
CREATE TEMPORARY VIEW persons AS SELECT id, name, city, state, happened FROM events WHERE kind = 'person';
CREATE TEMPORARY VIEW auctions AS
    SELECT id, seller, category, expires, happened FROM events WHERE kind = 'auction';
CREATE TEMPORARY VIEW valid AS
    SELECT auctions.id, seller, category, expires, price, auctions.happened AS opened FROM auctions
    JOIN bids ON auctions.id = auction AND bids.`at` <= expires
        AND bids.happened BETWEEN auctions.happened AND auctions.happened + INTERVAL '20' SECOND;
CREATE TEMPORARY VIEW won AS
    SELECT id, seller, category, expires, MAX(price) AS price
    FROM TABLE(TUMBLE(TABLE valid, DESCRIPTOR(opened), INTERVAL '1' SECOND))
    GROUP BY id, seller, category, expires, window_start, window_end;
CREATE TEMPORARY VIEW hot AS
    SELECT auction, COUNT(*) AS bids, window_start, window_end
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(happened), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end;
CREATE TEMPORARY VIEW most AS
    SELECT MAX(bids) AS bids, window_start, window_end FROM hot GROUP BY window_start, window_end;
CREATE TEMPORARY VIEW registered AS
    SELECT id, name, window_start, window_end
    FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(happened), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end;
CREATE TEMPORARY VIEW opened AS
    SELECT seller, window_start, window_end
    FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(happened), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end;
INSERT INTO q0 SELECT part, place, auction, bidder, price, utc FROM bids;
INSERT INTO q1 SELECT part, place, auction, bidder, price * 0.908, utc FROM bids;
INSERT INTO q2 SELECT part, place, auction, price FROM bids WHERE MOD(auction, 123) = 0;
INSERT INTO q3
    SELECT auctions.id, name, city, state FROM auctions
    JOIN persons ON seller = persons.id AND auctions.happened
        BETWEEN persons.happened - INTERVAL '60' SECOND AND persons.happened + INTERVAL '12' HOUR
    WHERE category = 10 AND state IN ('OR', 'ID', 'CA');
INSERT INTO q4 SELECT category, COUNT(*), AVG(CAST(price AS DOUBLE)) FROM won GROUP BY category;
INSERT INTO q5
    SELECT hot.window_start, hot.auction, hot.bids FROM hot
    JOIN most ON hot.window_start = most.window_start AND hot.window_end = most.window_end
    WHERE hot.bids = most.bids;
INSERT INTO q6
    SELECT seller, AVG(CAST(price AS DOUBLE)) FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS newest FROM won
    ) WHERE newest <= 10 GROUP BY seller;
INSERT INTO q7
    SELECT window_start, auction, bidder, price, utc FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
            ORDER BY price DESC, `at`, auction DESC, bidder DESC) AS place_in_window
        FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(happened), INTERVAL '10' SECOND))
    ) WHERE place_in_window = 1;
INSERT INTO q8
    SELECT id, registered.window_start, name FROM registered
    JOIN opened ON seller = id
        AND registered.window_start = opened.window_start AND registered.window_end = opened.window_end;
