BEGIN TRANSACTION;
CREATE TABLE agent (
	node VARCHAR(100) NOT NULL, 
	labels TEXT NOT NULL, 
	programs TEXT NOT NULL, 
	running TEXT NOT NULL, 
	buffered BIGINT NOT NULL, 
	last_seen DOUBLE NOT NULL, 
	PRIMARY KEY (node)
);
INSERT INTO "agent" VALUES('w1','{"rack": "1"}','["cpu_free", "cpu_performance"]','["cpu_free"]',3,1700000100.0);
INSERT INTO "agent" VALUES('w2','{}','["cpu_free"]','[]',0,1700000050.5);
CREATE TABLE latest (
	name VARCHAR(100) NOT NULL, 
	node VARCHAR(100) NOT NULL, 
	value TEXT, 
	unit VARCHAR(40), 
	time DOUBLE, 
	last_run DOUBLE NOT NULL, 
	last_exit_code INTEGER NOT NULL, 
	last_error TEXT NOT NULL, 
	PRIMARY KEY (name, node)
);
INSERT INTO "latest" VALUES('cpu_free','w1','0.5','fraction',1700000005.0,1700000006.0,3,'no "sensor"');
INSERT INTO "latest" VALUES('cpu_free','w2','1','fraction',1700000004.0,1700000004.0,0,'');
INSERT INTO "latest" VALUES('note','w2','"text"','',1700000003.0,1700000003.0,0,'');
INSERT INTO "latest" VALUES('gpu','w3',NULL,NULL,NULL,1700000004.0,1,'never');
CREATE TABLE registration (
	name VARCHAR(100) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "registration" VALUES('cpu_free','{"name":"cpu_free","program":"cpu_free","arguments":[],"kind":"collector","interval_s":5.0,"timeout_s":5.0,"nodes":[],"labels":{},"replicas":null,"unit":"fraction","inputs":[],"window_s":0.0}');
INSERT INTO "registration" VALUES('p','{"name":"p","program":"cpu_performance","arguments":[],"kind":"processor","interval_s":10.0,"timeout_s":5.0,"nodes":[],"labels":{"rack":"1"},"replicas":2,"unit":"","inputs":["cpu_free"],"window_s":60.0}');
CREATE TABLE sample (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	node VARCHAR(100) NOT NULL, 
	time DOUBLE NOT NULL, 
	value TEXT NOT NULL, 
	unit VARCHAR(40) NOT NULL, 
	exit_code INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	source VARCHAR(128), 
	seq BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT sample_once UNIQUE (source, seq)
);
INSERT INTO "sample" VALUES(1,'cpu_free','w1',1700000000.0,'0.0','fraction',0,'','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1);
INSERT INTO "sample" VALUES(2,'cpu_free','w1',1700000001.0,'0.1','fraction',0,'','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',2);
INSERT INTO "sample" VALUES(3,'cpu_free','w1',1700000002.0,'0.2','fraction',0,'','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',3);
INSERT INTO "sample" VALUES(4,'cpu_free','w1',1700000003.0,'0.3','fraction',0,'','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',4);
INSERT INTO "sample" VALUES(5,'cpu_free','w1',1700000004.0,'0.4','fraction',0,'','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',5);
INSERT INTO "sample" VALUES(6,'cpu_free','w1',1700000005.0,'0.5','fraction',0,'','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',6);
INSERT INTO "sample" VALUES(7,'cpu_free','w1',1700000006.0,'null','fraction',3,'no "sensor"','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',7);
INSERT INTO "sample" VALUES(8,'cpu_free','w2',1700000001.0,'0.5','fraction',0,'',NULL,NULL);
INSERT INTO "sample" VALUES(9,'cpu_free','w2',1700000002.0,'{"a":[1,null]}','fraction',0,'',NULL,NULL);
INSERT INTO "sample" VALUES(10,'note','w2',1700000003.0,'"text"','',0,'',NULL,NULL);
INSERT INTO "sample" VALUES(11,'cpu_free','w2',1700000004.0,'1','fraction',0,'','node w2',9);
INSERT INTO "sample" VALUES(12,'gpu','w3',1700000004.0,'null','fraction',1,'never',NULL,NULL);
CREATE TABLE token (
	digest VARCHAR(64) NOT NULL, 
	role VARCHAR(10) NOT NULL, 
	node VARCHAR(100), 
	label VARCHAR(100) NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "token" VALUES('3770a2d64d5a3b4b047b025d0807d4bab65f351946ac1575cb71f1815a6231d1','admin',NULL,'first start',1699999999.0);
INSERT INTO "token" VALUES('4b7401946641d04cb081e50d769611e478f6c2497df2a29f7d7ec3ba397d8aa0','agent',NULL,'first start',1699999999.0);
INSERT INTO "token" VALUES('ef57c79dd4527e498f32329db521f88df9e3113e6e502820a3caf79d712de252','agent','w1','first start',1699999999.0);
INSERT INTO "token" VALUES('429b9bb120a359b219aaaa38fc35040556348dbd6ca1e791030fe9f50c32f23a','reader',NULL,'first start',1699999999.0);
CREATE INDEX sample_time ON sample (time);
CREATE INDEX sample_history ON sample (name, node, time);
COMMIT;
